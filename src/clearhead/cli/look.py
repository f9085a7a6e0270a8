"""`clearhead look MODEL "text"`: look inside a model, in the terminal or as a figure, a page or data."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.common import Json, ModelPath, console, notes, print_json
from clearhead.errors import ConfigError
from clearhead.look.render.figure import WIDTHS
from clearhead.look.view import VIEWS, ViewOptions, check_suffix


def look(
    model: ModelPath,
    text: Annotated[str | None, typer.Argument(help="A text, or the path of an image.")] = None,
    view: Annotated[str, typer.Option(help=f"{', '.join(VIEWS.builtin())}, or a view of your own.")] = "heads",
    kind: Annotated[
        str | None, typer.Option(help="Kind of attention: encoder.self, decoder.self or decoder.cross.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer, counted from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Head, counted from 0.")] = None,
    query: Annotated[str | None, typer.Option(help="Query: a token, or its position from 0.")] = None,
    target: Annotated[str | None, typer.Option(help="Output to read instead of the translation or caption.")] = None,
    generate: Annotated[bool, typer.Option("--generate", help="Let a language model continue the text.")] = False,
    beams: Annotated[int, typer.Option(min=1, help="Beam width of --view beam.")] = 4,
    unit: Annotated[
        str | None, typer.Option(help="Unit of --view cells: LAYER:INDEX, for example decoder.1.hidden:17.")
    ] = None,
    feature: Annotated[
        str | None,
        typer.Option(help="Feature of --view cells: quotes, brackets, indentation, line position, case."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="rollout, flow: mean, max, min. cells: unit, direction. words: pca, tsne. "
            "importance: gradient, ablation."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Dataset to measure on, for --view importance and cells.")] = None,
    rows: Annotated[str | None, typer.Option(help="Rows to show, for example 10:40.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to show, for example 10:40.")] = None,
    width: Annotated[str, typer.Option(help="Width of a figure: slide, page, column, or inches.")] = "slide",
    out: Annotated[
        Path | None, typer.Option(help="File to write: figure .svg, .pdf or .png, page .html, or data .json.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look inside a model. Without --out, a small picture in the terminal shows it."""
    if out is not None:
        check_suffix(out)
        if not out.parent.is_dir():
            raise ConfigError(f"cannot write {out}: there is no folder {out.parent}")
    chosen, inches = VIEWS[view], _inches(width)
    options = ViewOptions(
        item=text,
        kind=kind,
        layer=layer,
        head=head,
        query=query,
        target=target,
        generate=generate,
        beam_width=beams,
        unit=unit,
        feature=feature,
        method=method,
        data=data,
        rows=_window(rows, "--rows"),
        columns=_window(columns, "--columns"),
    )
    import clearhead

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        shown = chosen.compute(clearhead.load(model), options)
        if out is not None:
            shown.save(out, inches)
        elif not as_json:
            shown.show(console())
    note = notes()
    for sentence in dict.fromkeys(str(each.message) for each in caught):
        note(sentence)
    if as_json:
        print_json(shown.to_json())
    elif out is not None:
        console().print(f"{view} of {model}: {out}", soft_wrap=True)


def _window(text: str | None, option: str) -> tuple[int, int] | None:
    """10:40, :40 or 10: as numbers."""
    if text is None:
        return None
    first, colon, end = text.partition(":")
    numbers = [first or "0", end or str(10**9)]
    if not colon or not all(number.isdecimal() for number in numbers):
        raise ConfigError(f"{option} {text} is not a range: write {option} 10:40")
    return int(numbers[0]), int(numbers[1])


def _inches(width: str) -> float:
    try:
        return WIDTHS[width] if width in WIDTHS else float(width)
    except ValueError:
        raise ConfigError(f"--width {width} is not a width: choose {', '.join(WIDTHS)}, or inches") from None
