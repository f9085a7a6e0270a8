"""`clearhead look MODEL "text"`: what a model looks at and computes, on the screen or as a figure, a page or data."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import ModelPath
from clearhead.cli.output import Json, console, notes, print_json
from clearhead.errors import ConfigError, nearest

if TYPE_CHECKING:
    from clearhead.cli.views import Shown

FIGURES, PAGES, DATA = (".svg", ".pdf", ".png"), (".html",), (".json",)
VIEWS = {
    "heads": "where each head looks",
    "lines": "the same as lines between words",
    "steps": "one query, from its score to what the block writes",
    "rollout": "what each token came from, through all layers",
    "flow": "the same as a maximum flow",
    "relevance": "what an answer rests on, by attention and gradients",
    "gradients": "what an answer owes to each token, without attention",
    "beam": "every text that a beam search kept or dropped",
    "lens": "what the model would answer after each layer",
    "cells": "a text coloured by one unit, and units that follow something",
    "positions": "what tells the model the order of tokens",
    "patches": "what a vision model looks for in a patch",
    "words": "word vectors on a plane; the text is the words",
    "importance": "how much worse the model is without each head",
    "induction": "which heads repeat what was read before",
    "history": "one example at every evaluation of the training",
    "scaling": "what 1/√d_k does before training",
}


def look(
    model: ModelPath,
    text: Annotated[str | None, typer.Argument(help="A text, or the path of an image.")] = None,
    view: Annotated[str, typer.Option(help=", ".join(VIEWS) + ".")] = "heads",
    kind: Annotated[str | None, typer.Option(help="encoder.self, decoder.self or decoder.cross.")] = None,
    layer: Annotated[int | None, typer.Option(help="Counted from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Counted from 0.")] = None,
    query: Annotated[str | None, typer.Option(help="A word that looks, or its number from 0.")] = None,
    target: Annotated[str | None, typer.Option(help="What a translator is to have written.")] = None,
    generate: Annotated[bool, typer.Option("--generate", help="Let a language model go on from the text.")] = False,
    beams: Annotated[int, typer.Option(min=1, help="Beginnings that a beam search keeps.")] = 4,
    unit: Annotated[str | None, typer.Option(help="Of cells: LAYER:NUMBER, decoder.1.hidden:17 for one.")] = None,
    feature: Annotated[
        str | None, typer.Option(help="Of cells: quotes, brackets, indentation, line position, case.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Of rollout, cells, words and importance: how.")] = None,
    data: Annotated[str | None, typer.Option(help="Of importance and cells: what to measure on.")] = None,
    rows: Annotated[str | None, typer.Option(help="Show some rows: 10:40.")] = None,
    columns: Annotated[str | None, typer.Option(help="Show some columns: 10:40.")] = None,
    width: Annotated[str, typer.Option(help="slide, page, column, or inches.")] = "slide",
    out: Annotated[Path | None, typer.Option(help="A figure .svg, .pdf or .png, a page .html, or data .json.")] = None,
    as_json: Json = False,
) -> None:
    """Look inside a model; without --out a small picture in the terminal."""
    if view not in VIEWS:
        raise ConfigError(f"unknown view {view}; {nearest(view, VIEWS)}")
    _check_out(out)
    from clearhead.cli.views import Asked, show

    asked = Asked(
        name=model,
        item=text,
        kind=kind,
        layer=layer,
        head=head,
        query=query,
        target=target,
        generate=generate,
        beams=beams,
        unit=unit,
        feature=feature,
        method=method,
        data=data,
        rows=_window(rows, "--rows"),
        columns=_window(columns, "--columns"),
        width=_inches(width),
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        shown = show(view, asked)
        if out is not None:
            _write(shown, out)
    note = notes()
    for sentence in dict.fromkeys(str(each.message) for each in said):
        note(sentence)
    if as_json:
        print_json(shown.document())
    elif out is None:
        shown.on_screen(console())
    else:
        console().print(f"{view} of {model}: {out}", soft_wrap=True)


def _write(shown: Shown, out: Path) -> None:
    kind = out.suffix.lower()
    if kind in FIGURES:
        shown.figure().save(out)
        return
    text = shown.html() if kind in PAGES else json.dumps(shown.document(), ensure_ascii=False) + "\n"
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"cannot write {out}: {problem.strerror or problem}") from None


def _check_out(out: Path | None) -> None:
    """Refuse a place or a kind of file before any work is done."""
    if out is None:
        return
    if out.suffix.lower() not in FIGURES + PAGES + DATA:
        raise ConfigError(f"cannot write {out}: choose a name that ends in {', '.join(FIGURES + PAGES + DATA)}")
    if not out.parent.is_dir():
        raise ConfigError(f"cannot write {out}: there is no folder {out.parent}")


def _window(text: str | None, option: str) -> tuple[int, int] | None:
    """10:40, :40 and 10: as numbers."""
    if text is None:
        return None
    first, colon, end = text.partition(":")
    numbers = [first or "0", end or str(10**9)]
    if not colon or not all(number.isdecimal() for number in numbers):
        raise ConfigError(f"{option} {text} is no part of a text: write {option} 10:40")
    return int(numbers[0]), int(numbers[1])


def _inches(width: str) -> float:
    from clearhead.look.figures.sheet import WIDTHS

    try:
        return WIDTHS[width] if width in WIDTHS else float(width)
    except ValueError:
        raise ConfigError(f"--width {width} is no width: choose {', '.join(WIDTHS)}, or inches") from None
