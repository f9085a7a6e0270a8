"""`clearhead eval RUN`: scores of a finished model on its validation part or on other data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.common import (
    FORMAT_HELP,
    Json,
    ModelPath,
    console,
    print_json,
    print_table,
    progress_bar,
    shot_format,
)
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.tasks.base.task import Evaluation
    from clearhead.train.evaluate import Confusion

MATRIX_LABELS = 12  # a confusion matrix of up to this many labels fits a terminal


def evaluate(
    run: ModelPath,
    data: Annotated[
        str | None, typer.Option(help="Score every example of this data instead of the validation part.")
    ] = None,
    shots: Annotated[
        str | None,
        typer.Option(help="Label texts by a language model that has read this many examples; also several: 0,1,2,4."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="With --shots, the word for a label: 0=negative; for each of them.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help=FORMAT_HELP)] = None,
    figure: Annotated[Path | None, typer.Option(help="With --shots, draw the accuracies: .svg, .pdf or .png.")] = None,
    seed: Annotated[int, typer.Option(help="With --shots, the random seed that chooses the examples.")] = 0,
    as_json: Json = False,
) -> None:
    """Score a finished model on held-out data."""
    from clearhead.run import find
    from clearhead.train.evaluate import evaluate as score

    if shots is not None:
        _in_context(run, data, shots, label or [], form, seed, figure, as_json)
        return
    if label or form is not None or figure is not None:
        raise ConfigError("--label, --format and --figure are for a model that reads examples; give --shots too")
    evaluation = score(
        find(run), data, lambda text: None if as_json else console(stderr=True).print(text, soft_wrap=True)
    )
    if as_json:
        print_json({"run": run, **evaluation.document()})
        return
    part = f"the validation part of {evaluation.data}" if data is None else f"all of {evaluation.data}"
    console().print(f"{run} on {part}\n", soft_wrap=True)
    print_scores(evaluation)
    if evaluation.confusion is not None:
        _print_classes(evaluation.confusion)


def _in_context(
    model: str,
    data: str | None,
    shots: str,
    labels: list[str],
    form: str | None,
    seed: int,
    figure: Path | None,
    as_json: bool,
) -> None:
    from clearhead.train.compare import check_figure
    from clearhead.train.evaluate import evaluate_in_context, save_shots_figure

    if data is None:
        raise ConfigError("--shots needs labelled texts: --data labelled.tsv")
    counts = shots.split(",")
    if not all(count.isdecimal() for count in counts):
        raise ConfigError(f"--shots={shots} must be numbers of examples, such as 4 or 0,1,2,4")
    if figure is not None:
        check_figure(figure)
    pairs = [label.partition("=") for label in labels]
    if wrong := [label for label, (_, sign, word) in zip(labels, pairs, strict=True) if not (sign and word)]:
        raise ConfigError(f"--label={wrong[0]} must be a label and the word for it: --label 0=negative")
    words = {name: word for name, _, word in pairs}
    with progress_bar("texts", shown=not as_json) as advance:
        found = evaluate_in_context(
            model, data, list(map(int, counts)), seed=seed, words=words, on_progress=advance, **shot_format(form)
        )
    if figure is not None:
        save_shots_figure(found, figure, model)
    if as_json:
        documents = [{"run": model, **each.document()} for each in found]
        print_json(documents[0] if len(documents) == 1 else {"run": model, "shots": documents})
        return
    for each in found:
        console().print(f"{model} on {each.data}, after {each.shots} examples\n", soft_wrap=True)
        print_scores(each)
        if each.confusion is not None:
            _print_classes(each.confusion)


def print_scores(evaluation: Evaluation) -> None:
    """Print the loss, and each score with its signature."""
    screen = console()
    width = max(11, *(len(score.name) for score in evaluation.scores)) if evaluation.scores else 11
    screen.print(f"{'loss':<{width}} {evaluation.loss:.4f}")
    for score in evaluation.scores:
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
    if len(confusion.labels) <= MATRIX_LABELS:
        console().print("right label ↓, taken for →")
        matrix = [(label, *row) for label, row in zip(confusion.labels, confusion.counts, strict=True)]
        print_table("", ("", *confusion.labels), matrix, folds=0)
    elif largest := confusion.largest():
        console().print("most frequent mistakes")
        print_table("", ("right label", "taken for", "times"), largest, folds=0)
