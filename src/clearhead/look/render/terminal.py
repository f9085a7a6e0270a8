"""Output in a terminal: a matrix as shaded blocks, numbers as bars, a text with a line of heights below it.

The denser a block, the larger its number, on dark and light terminals, with colours or without. Where the encoding of
the output has no blocks, ASCII signs stand for them.

    T rows or tokens, S columns
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from torch import Tensor

from clearhead.errors import ShapeError

if TYPE_CHECKING:
    from rich.console import Console

SHADES, ASCII_SHADES = " ░▒▓█", " .:*#"
HEIGHTS, ASCII_HEIGHTS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
USUAL, STRONGEST, NEGATIVE = "blue", "bold yellow", "red"  # colours; the strongest of each row
LEFT, ABOVE = 14, 10  # letters of a label at the left, and of one above a narrow column
NARROWEST, WIDEST = 2, 8  # letters of a column, including the blank after it


def show_matrix(
    console: Console,
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    visible: Tensor | None = None,
) -> None:
    """Print values (T, S) >= 0 as blocks: as many columns as fit, and a note about the others."""
    if values.shape != (len(rows), len(columns)) or not values.numel():
        have = f"{len(rows)} rows and {len(columns)} columns"
        raise ShapeError(f"a matrix of shape {tuple(values.shape)} does not fit {have}: give a label for each")
    left = min(LEFT, max(cell_len(label) for label in rows)) + 1
    fit = max(1, min(len(columns), (console.width - left) // NARROWEST))
    wide = max(NARROWEST, min(WIDEST, (console.width - left) // fit))
    shades, largest = _signs(console, SHADES, ASCII_SHADES), float(values.max()) or 1.0
    shown = values[:, :fit] if visible is None else values[:, :fit] * visible[:, :fit]
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    for line in _heading(columns[:fit], wide):
        _print(console, Text(" " * left + line, style="dim"))
    for label, row in zip(rows, shown.tolist(), strict=True):
        _print(console, Text(_right_aligned(label, left - 1) + " ").append_text(_blocks(row, largest, shades, wide)))
    _print(console, Text(_legend(shades, largest), style="dim"))
    if fit < len(columns):
        console.print(f"columns 0:{fit} of {len(columns)}; --columns {fit}: shows the others", soft_wrap=True)


def show_bars(console: Console, values: Tensor, labels: Sequence[str], title: str = "") -> None:
    """Print values (T,): a line for each label with its number and a bar; negative ones in red."""
    left = min(LEFT, max(cell_len(label) for label in labels))
    bar = "█" if _has_blocks(console) else "#"
    largest = float(values.abs().max()) or 1.0
    room = max(10, min(40, console.width - left - 12))
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    for label, value in zip(labels, values.tolist(), strict=True):
        line = Text(f"{_right_aligned(label, left)} {value:7.3f} ")
        _print(console, line.append(bar * round(abs(value) / largest * room), style=USUAL if value >= 0 else NEGATIVE))


def show_heights(console: Console, tokens: Sequence[str], values: Tensor, title: str = "") -> None:
    """Print the text in lines and below it values (T,) as heights between the lowest and the highest."""
    heights = _signs(console, HEIGHTS, ASCII_HEIGHTS)
    low, high = float(values.min()), float(values.max())
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    for line in _lines(tokens, values.tolist(), console.width):
        text, below = "", ""
        for token, value in line:
            text += token
            below += _sign((value - low) / ((high - low) or 1.0), heights) * cell_len(token)
        _print(console, Text(text))
        _print(console, Text(below, style=USUAL))


def show_heads(console: Console, values: Tensor, title: str) -> None:
    """Print values (layers, heads) >= 0 as blocks."""
    show_matrix(console, values, *head_labels(values), title)


def head_labels(values: Tensor) -> tuple[list[str], list[str]]:
    """The row and column labels of a table (layers, heads)."""
    layers, heads = values.shape
    return [f"layer {layer}" for layer in range(layers)], [f"head {head}" for head in range(heads)]


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; its first column folds where there is no room."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place != 0)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def _print(console: Console, line: Text) -> None:
    console.print(line, no_wrap=True, overflow="crop", crop=True)


def _has_blocks(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def _signs(console: Console, blocks: str, ascii_signs: str) -> str:
    return blocks if _has_blocks(console) else ascii_signs


def _sign(share: float, signs: str) -> str:
    return signs[min(len(signs) - 1, max(0, round(share * (len(signs) - 1))))]


def _blocks(row: Sequence[float], largest: float, shades: str, wide: int) -> Text:
    strongest = max(range(len(row)), key=row.__getitem__)
    line = Text()
    for place, value in enumerate(row):
        style = STRONGEST if place == strongest else USUAL
        line.append(_sign(value / largest, shades) * (wide - 1), style=style).append(" ")
    return line


def _heading(labels: Sequence[str], wide: int) -> Iterator[str]:
    """Labels above their columns: in one line if they fit, otherwise letter below letter."""
    if all(cell_len(label) < wide for label in labels):
        yield "".join(set_cell_size(label, wide) for label in labels)
        return
    cut = [label if len(label) <= ABOVE else label[: ABOVE - 1] + "…" for label in labels]
    tallest = max(len(label) for label in cut)
    for letters in zip_longest(*(label.rjust(tallest) for label in cut), fillvalue=" "):
        yield "".join(set_cell_size(letter, wide) for letter in letters)


def _right_aligned(label: str, room: int) -> str:
    """A label padded at the left to `room` cells, or cut to fit."""
    shown = label if cell_len(label) <= room else set_cell_size(label, room - 1) + "…"
    return " " * (room - cell_len(shown)) + shown


def _legend(shades: str, largest: float) -> str:
    steps = len(shades) - 1
    return "  ".join(f"{shade} {largest * place / steps:.2g}" for place, shade in enumerate(shades) if place)


def _lines(tokens: Sequence[str], values: Sequence[float], width: int) -> Iterator[list[tuple[str, float]]]:
    """Tokens with their numbers, in lines of at most `width` cells; a line break in a token ends the line."""
    gap = "" if all(len(token) <= 1 for token in tokens) else " "
    line: list[tuple[str, float]] = []
    for token, value in zip(tokens, values, strict=True):
        text = " " if token == "␣" else token.replace("\n", "⏎") + gap
        if line and sum(cell_len(each) for each, _ in line) + cell_len(text) > width:
            yield line
            line = []
        line.append((text, value))
        if token.endswith(("\n", "⏎")):
            yield line
            line = []
    if line:
        yield line
