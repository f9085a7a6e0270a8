"""`clearhead compare RUN RUN …`: runs of one task side by side, as a table and as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, console, print_json, print_table


def compare(
    runs: Annotated[list[str], typer.Argument(help="Run directories, or names listed by `clearhead models`.")],
    out: Annotated[
        Path | None, typer.Option(help="Also draw a figure of losses and scores: .svg, .png or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare finished runs of one task side by side."""
    from clearhead.run import find
    from clearhead.train import compare as comparison

    if out is not None:
        comparison.check_figure(out)
    records = comparison.compare([find(run) for run in runs])
    if out is not None:
        comparison.save_figure(records, out)
    if as_json:
        print_json([record.document() for record in records])
        return
    scores = comparison.score_names(records)
    rows = [
        (
            record.name,
            f"{record.parameters:,}",
            f"{record.last.step:,}",
            _number(record.last.minutes, ".1f"),
            f"{record.last.loss:.4f}",
            *(_number(record.scores.get(name), ".4g") for name in scores),
        )
        for record in records
    ]
    console().print(f"task: {records[0].task}")
    narrow = (name.replace(" ", "\n") for name in scores)  # `exact match` on one line does not fit into 80 columns
    print_table("", ("run", "parameters", "steps", "minutes", "loss", *narrow), rows, folds=0)
    if out is not None:
        console().print(f"The figure is in {out}.", soft_wrap=True)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
