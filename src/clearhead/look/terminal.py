"""Small pictures in the terminal: a matrix as blocks, numbers as bars, a text with a line of heights below it.

The denser a block the larger its number, on a dark terminal as on a light one, with colours or without; where the
output cannot show blocks, plain signs stand for them.

    T rows or tokens, S columns
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text
from torch import Tensor

from clearhead.errors import ShapeError

SHADES, PLAIN_SHADES = " ░▒▓█", " .:*#"
HEIGHTS, PLAIN_HEIGHTS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
OTHERS, STRONGEST = "blue", "bold yellow"  # where there are colours; the strongest of each row
LEFT, ABOVE = 14, 10  # letters of a word at the left, and above a column that is narrower than the word
NARROWEST, WIDEST = 2, 8  # letters of a column, with the blank after it


def show_matrix(
    screen: Console,
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    visible: Tensor | None = None,
) -> None:
    """values (T, S), none negative, as blocks; as many columns as fit, and a note of those that do not."""
    if values.shape != (len(rows), len(columns)) or not values.numel():
        have = f"{len(rows)} rows and {len(columns)} columns"
        raise ShapeError(f"a matrix of shape {tuple(values.shape)} does not fit {have}: give a word for each")
    left = min(LEFT, max(cell_len(word) for word in rows)) + 1
    fit = max(1, min(len(columns), (screen.width - left) // NARROWEST))
    wide = max(NARROWEST, min(WIDEST, (screen.width - left) // fit))
    shades, largest = _signs(screen, SHADES, PLAIN_SHADES), float(values.max()) or 1.0
    shown = values[:, :fit] if visible is None else values[:, :fit] * visible[:, :fit]
    if title:
        screen.print(Text(title, style="bold"), soft_wrap=True)
    for line in _heading(columns[:fit], wide):
        _print(screen, Text(" " * left + line, style="dim"))
    for word, row in zip(rows, shown.tolist(), strict=True):
        _print(screen, Text(_at_right(word, left - 1) + " ").append_text(_blocks(row, largest, shades, wide)))
    _print(screen, Text(_key(shades, largest), style="dim"))
    if fit < len(columns):
        screen.print(f"columns 0:{fit} of {len(columns)}; --columns {fit}: shows the others", soft_wrap=True)


def show_bars(screen: Console, values: Tensor, words: Sequence[str], title: str = "") -> None:
    """values (T,): a line for each word with its number and a bar; what is negative has its sign and its colour."""
    left = min(LEFT, max(cell_len(word) for word in words))
    bar = "█" if _can_draw(screen) else "#"
    largest = float(values.abs().max()) or 1.0
    room = max(10, min(40, screen.width - left - 12))
    if title:
        screen.print(Text(title, style="bold"), soft_wrap=True)
    for word, value in zip(words, values.tolist(), strict=True):
        line = Text(f"{_at_right(word, left)} {value:7.3f} ")
        _print(screen, line.append(bar * round(abs(value) / largest * room), style=OTHERS if value >= 0 else STRONGEST))


def show_heights(screen: Console, tokens: Sequence[str], values: Tensor, title: str = "") -> None:
    """values (T,): the text in lines, and below each letter how high its number is between the lowest and highest."""
    heights = _signs(screen, HEIGHTS, PLAIN_HEIGHTS)
    low, high = float(values.min()), float(values.max())
    if title:
        screen.print(Text(title, style="bold"), soft_wrap=True)
    for line in _lines(tokens, values.tolist(), screen.width):
        text, below = "", ""
        for token, value in line:
            text += token
            below += _sign((value - low) / ((high - low) or 1.0), heights) * cell_len(token)
        _print(screen, Text(text))
        _print(screen, Text(below, style=OTHERS))


def _print(screen: Console, line: Text) -> None:
    screen.print(line, no_wrap=True, overflow="crop", crop=True)


def _can_draw(screen: Console) -> bool:
    return screen.encoding.lower().startswith("utf")


def _signs(screen: Console, drawn: str, plain: str) -> str:
    return drawn if _can_draw(screen) else plain


def _sign(share: float, signs: str) -> str:
    """The sign of a number between 0 and 1."""
    return signs[min(len(signs) - 1, max(0, round(share * (len(signs) - 1))))]


def _blocks(row: Sequence[float], largest: float, shades: str, wide: int) -> Text:
    strongest = max(range(len(row)), key=row.__getitem__)
    line = Text()
    for place, value in enumerate(row):
        style = STRONGEST if place == strongest else OTHERS
        line.append(_sign(value / largest, shades) * (wide - 1), style=style).append(" ")
    return line


def _heading(words: Sequence[str], wide: int) -> Iterator[str]:
    """Words above their columns, in one line if they fit, otherwise letter below letter."""
    if all(cell_len(word) < wide for word in words):
        yield "".join(set_cell_size(word, wide) for word in words)
        return
    cut = [word if len(word) <= ABOVE else word[: ABOVE - 1] + "…" for word in words]
    tallest = max(len(word) for word in cut)
    for letters in zip_longest(*(word.rjust(tallest) for word in cut), fillvalue=" "):
        yield "".join(set_cell_size(letter, wide) for letter in letters)


def _at_right(word: str, room: int) -> str:
    """A word that ends at the room's end, cut if it is longer."""
    shown = word if cell_len(word) <= room else set_cell_size(word, room - 1) + "…"
    return " " * (room - cell_len(shown)) + shown


def _key(shades: str, largest: float) -> str:
    steps = len(shades) - 1
    return "  ".join(f"{shade} {largest * place / steps:.2g}" for place, shade in enumerate(shades) if place)


def _lines(tokens: Sequence[str], values: Sequence[float], width: int) -> Iterator[list[tuple[str, float]]]:
    """Tokens and their numbers, line by line; a token that breaks a line does so here."""
    gap = "" if all(len(token) <= 1 for token in tokens) else " "
    line: list[tuple[str, float]] = []
    for token, value in zip(tokens, values, strict=True):
        word = " " if token == "␣" else token.replace("\n", "⏎") + gap
        if line and sum(cell_len(each) for each, _ in line) + cell_len(word) > width:
            yield line
            line = []
        line.append((word, value))
        if token.endswith(("\n", "⏎")):
            yield line
            line = []
    if line:
        yield line
