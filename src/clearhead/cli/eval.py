"""`clearhead eval RUN`: how good a finished model is, on its own validation part or on other data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import ModelPath
from clearhead.cli.output import Json, console, print_json, print_table

if TYPE_CHECKING:
    from clearhead.tasks.base.task import Evaluation
    from clearhead.train.evaluate import Confusion

FEW = 12  # labels of which a terminal has room for the whole matrix


def evaluate(
    run: ModelPath,
    data: Annotated[str | None, typer.Option(help="Score all of this data instead of the validation part.")] = None,
    as_json: Json = False,
) -> None:
    """Score a finished model."""
    from clearhead.run import find
    from clearhead.train.evaluate import evaluate as score

    found = score(find(run), data, lambda text: None if as_json else console(stderr=True).print(text, soft_wrap=True))
    if as_json:
        print_json({"run": run, **found.document()})
        return
    part = f"the validation part of {found.data}" if data is None else f"all of {found.data}"
    console().print(f"{run} on {part}\n", soft_wrap=True)
    print_scores(found)
    if found.confusion is not None:
        _print_classes(found.confusion)


def print_scores(found: Evaluation) -> None:
    """The loss, and each score with its signature."""
    screen = console()
    width = max(11, *(len(score.name) for score in found.scores)) if found.scores else 11
    screen.print(f"{'loss':<{width}} {found.loss:.4f}")
    for score in found.scores:
        signature = f"   {score.signature}" if score.signature else ""
        screen.print(f"{score.name:<{width}} {score.value:.4g}{signature}", soft_wrap=True)


def _print_classes(confusion: Confusion) -> None:
    shares = ("precision", "recall", "F1")
    rows = [
        (one["label"], f"{one['examples']:,}", *(f"{one[share]:.3f}" for share in shares))
        for one in confusion.classes()
    ]
    console().print()
    print_table("", ("label", "examples", *shares), rows, folds=0)
    if len(confusion.labels) <= FEW:
        console().print("right label ↓, taken for →")
        matrix = [(label, *row) for label, row in zip(confusion.labels, confusion.counts, strict=True)]
        print_table("", ("", *confusion.labels), matrix, folds=0)
    elif largest := confusion.largest():
        console().print("most frequent mistakes")
        print_table("", ("right label", "taken for", "times"), largest, folds=0)
