"""`clearhead check RUN [--against PATH]`: what must hold for every model, measured on this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, print_json, print_table


def check(
    model: ModelPath,
    against: Annotated[
        Path | None, typer.Option(help="The foreign model that it was imported from, to compare every block with.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test a model: causality, padding, cache, engines, tokenizer.

    Prints the largest difference that each test found. If one fails, it names the layer and exits with 1.
    """
    import clearhead
    from clearhead.interop.check import check_model

    loaded = clearhead.load(model)
    results = check_model(loaded, against)
    if as_json:
        print_json([each.record() for each in results])
    else:
        rows = [(each.name, _outcome(each.passed, each.skipped), _worst(each.worst), each.where) for each in results]
        print_table(loaded.name, ("check", "outcome", "worst difference", "first at"), rows)
    if not all(each.passed for each in results):
        raise typer.Exit(1)


def _outcome(passed: bool, skipped: str) -> str:
    return f"not done: {skipped}" if skipped else "passed" if passed else "FAILED"


def _worst(difference: float | None) -> str:
    return "" if difference is None else f"{difference:.1e}"
