"""`clearhead merge RUN --out DIR`: an adapter and its base, or two trainings of one network, as one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, console, print_json


def merge(
    run: Annotated[Path, typer.Argument(help="Run directory of an adapter (train.adapter=lora), or of a model.")],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    other: Annotated[Path | None, typer.Option("--with", help="Another training of the same network.")] = None,
    share: Annotated[float, typer.Option(help="Part of RUN in the mean of the weights.")] = 0.5,
    as_json: Json = False,
) -> None:
    """Add an adapter's updates to its base, or average two models."""
    from clearhead.train.merge import merge as merge_runs

    merge_runs(run, out, other, share)
    if as_json:
        print_json({"run": str(run), "out": str(out)})
    else:
        console().print(f"The merged model is in {out}.", soft_wrap=True)
