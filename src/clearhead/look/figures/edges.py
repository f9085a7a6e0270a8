"""Words at the edges of a matrix: as people read them, turned where they are many, thinned where they are too many."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any
from unicodedata import east_asian_width

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Page

from clearhead.errors import ConfigError
from clearhead.look.figures.sheet import letter_size

Window = tuple[int, int] | None  # the tokens from the first number up to and without the second; all of them

MANY = 200  # tokens: beyond, a cell is smaller than a point on most screens


def readable(word: str, longest: int = 18) -> str:
    """A token as a label: blanks around it go, what is blank gets a sign, what is long gets an end.

    >>> readable("\\n"), readable("▁the"), readable("internationalisation", 8)
    ('⏎', 'the', 'interna…')
    """
    shown = word.replace("▁", " ").replace("\n", "⏎").replace("\t", "⇥").strip(" ") or "␣"
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def cells(word: str) -> int:
    """How many narrow letters wide a word is: 漢 is 2."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in word)


def every(count: int, room: float, size: float) -> int:
    """One label of how many is shown, where each takes `size` of the room.

    >>> every(count=40, room=100, size=10)
    4
    """
    return max(1, math.ceil(count * size / max(room, 1)))


def part(window: Window, count: int, what: str) -> slice:
    """The tokens that are shown: all of them, or those from the first up to and without the second."""
    if window is None:
        if count > MANY:
            warnings.warn(
                f"{count} {what} are more than can be told apart: show some of them, {what}=10:40 for one",
                stacklevel=3,
            )
        return slice(0, count)
    first, end = window
    if not 0 <= first < min(end, count):
        raise ConfigError(f"there are no {what} {first}:{end}: there are {count}, counted from 0")
    return slice(first, min(end, count))


def name_edges(axes: Axes, rows: Sequence[str] = (), columns: Sequence[str] = (), top: bool = True) -> None:
    """Name the rows and the columns of a matrix that is drawn on the axes, as many as there is room for."""
    name_all([(axes, rows, columns)], top)


def name_all(matrices: Sequence[tuple[Axes, Sequence[str], Sequence[str]]], top: bool) -> None:
    """The same for several matrices of one page, each with its rows and columns."""
    named = [(axes, [*map(readable, rows)], [*map(readable, columns)]) for axes, rows, columns in matrices]
    for axes, rows, columns in named:  # first only the longest words: they decide how much room is left for a matrix
        axes.tick_params(length=0, labeltop=top, labelbottom=not top)
        _name_rows(axes, rows, _longest(rows))
        _name_columns(axes, columns, _longest(columns), 90, top)
    page_of(matrices[0][0]).draw_without_rendering()
    for axes, rows, columns in named:
        (width, height), line = _drawn_size(axes), 1.25 * 0.9 * letters_of(axes)
        _name_rows(axes, rows, range(0, len(rows), every(len(rows), height, line)))
        angle, size = _turned(columns, width, line)
        _name_columns(axes, columns, range(0, len(columns), every(len(columns), width, size)), angle, top)


def size_of(axes: Axes) -> tuple[float, float]:
    """Width and height in points, after everything on the page has found its place."""
    page_of(axes).draw_without_rendering()
    return _drawn_size(axes)


def _drawn_size(axes: Axes) -> tuple[float, float]:
    box, dpi = axes.get_window_extent(), page_of(axes).dpi
    return box.width / dpi * 72, box.height / dpi * 72


def letters_of(axes: Axes) -> float:
    """The size of the letters on their page, in points."""
    return letter_size(page_of(axes).get_figwidth())


def page_of(axes: Axes) -> Page:
    """The page that the axes are on."""
    page = axes.get_figure(root=True)
    assert page is not None
    return page


def _turned(words: Sequence[str], width: float, line: float) -> tuple[int, float]:
    """The angle at which words fit above their columns, and the room that each then takes."""
    each = width / max(1, len(words))
    widest = 0.55 * line * max((cells(word) for word in words), default=0)
    if widest < each or widest <= line:  # a letter needs no more room upright than turned
        return 0, max(widest, 0.7 * line)
    return (45, 1.5 * line) if 1.5 * line <= each else (90, line)


def _name_rows(axes: Axes, words: Sequence[str], places: Sequence[int]) -> None:
    axes.set_yticks(places, [words[place] for place in places])


def _name_columns(axes: Axes, words: Sequence[str], places: Sequence[int], angle: int, top: bool) -> None:
    """Slanted words begin at their column when they stand on it, and end there when they hang below."""
    slanted: dict[str, Any] = {"ha": "left" if top else "right", "rotation_mode": "anchor"}
    axes.set_xticks(places, [words[place] for place in places], rotation=angle, **(slanted if angle == 45 else {}))


def _longest(words: Sequence[str]) -> Sequence[int]:
    return sorted(range(len(words)), key=lambda place: cells(words[place]))[-1:]
