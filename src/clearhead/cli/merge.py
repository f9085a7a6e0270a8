"""`clearhead merge RUN --out DIR`: an adapter and its base as one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, console, print_json


def merge(
    run: Annotated[Path, typer.Argument(help="Run directory of an adapter (train.adapter=lora).")],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    as_json: Json = False,
) -> None:
    """Add an adapter's updates to the weights of its base, and write the sum as a model of its own."""
    from clearhead.train.adapters import merge as merge_run

    merge_run(run, out)
    if as_json:
        print_json({"run": str(run), "out": str(out)})
    else:
        console().print(f"The merged model is in {out}.", soft_wrap=True)
