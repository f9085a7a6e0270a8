"""`clearhead import PATH --out RUN`: a foreign model becomes a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, console, print_json


def import_(
    path: Annotated[Path, typer.Argument(help="A Hugging Face folder, or a file in another format.")],
    out: Annotated[Path, typer.Option(help="The run directory to write.")],
    family: Annotated[
        str | None, typer.Option("--as", help="The family of the model, where its files say another or none.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Compare with transformers, if it is installed.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Import a model that was trained elsewhere. Prints what became of its tensors, and how equal it is."""
    from clearhead.interop.parity import import_and_compare

    report = import_and_compare(path, out, family, compare)
    if as_json:
        print_json(report.record())
        return
    console().print(f"{out}: a model of the family {report.family}, for `clearhead {report.verb}`", soft_wrap=True)
    console().print(report.text(), soft_wrap=True)
