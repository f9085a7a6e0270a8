"""Labels of tokens: how they are written, how wide they are, and as many beside a matrix as there is room for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from clearhead.look.render.figure import axes_font_size, drawn_size, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 1.25  # height of a line of labels, in font sizes
SMALLEST = 0.6  # of the usual font size, below which labels are left out instead


def token_label(token: str, longest: int = 18) -> str:
    """A token as a label: without blanks around it, with a sign for what is blank, cut if it is long.

    >>> token_label("\\n"), token_label("▁the"), token_label("internationalisation", 8)
    ('⏎', 'the', 'interna…')
    """
    shown = token.replace("▁", " ").replace("\n", "⏎").replace("\t", "⇥").strip(" ") or "␣"
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def text_cells(text: str) -> int:
    """The width of a text in narrow letters: 漢 counts as 2."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def label_step(count: int, room: float, size: float) -> int:
    """Show one label of how many, if each takes `size` of the room.

    >>> label_step(count=40, room=100, size=10)
    4
    """
    return max(1, math.ceil(count * size / max(room, 1)))


# --- labels at the edges ---


def label_edges(axes: Axes, rows: Sequence[str] = (), columns: Sequence[str] = (), top: bool = True) -> None:
    """Label the rows and columns of a matrix, as many as there is room for."""
    label_all_edges([(axes, rows, columns)], top)


def label_all_edges(matrices: Sequence[tuple[Axes, Sequence[str], Sequence[str]]], top: bool) -> None:
    """Label several matrices of one figure, each with its rows and columns."""
    named = [(axes, [*map(token_label, rows)], [*map(token_label, columns)]) for axes, rows, columns in matrices]
    for axes, rows, columns in named:  # first only the longest labels: they decide how much room the matrix has
        axes.tick_params(length=0, labeltop=top, labelbottom=not top)
        _label_rows(axes, rows, _longest(rows))
        _label_columns(axes, columns, _longest(columns), 90, top)
    figure_of(matrices[0][0]).draw_without_rendering()
    for axes, rows, columns in named:
        (width, height), usual = drawn_size(axes), 0.9 * axes_font_size(axes)
        size = fitting_size(len(rows), height, usual)
        axes.tick_params(axis="y", labelsize=size)
        _label_rows(axes, rows, range(0, len(rows), label_step(len(rows), height, LINE * size)))
        size = fitting_size(len(columns), width, usual)
        axes.tick_params(axis="x", labelsize=size)
        angle, room = _rotation(columns, width, LINE * size)
        _label_columns(axes, columns, range(0, len(columns), label_step(len(columns), width, room)), angle, top)


def fitting_size(count: int, room: float, usual: float) -> float:
    """The font size in points at which `count` lines fit into the room: smaller than usual before some are left out.

    >>> fitting_size(count=10, room=200, usual=12), fitting_size(count=20, room=200, usual=12)
    (12, 8.0)
    """
    return min(usual, max(SMALLEST * usual, room / max(1, count) / LINE))


def _rotation(labels: Sequence[str], width: float, line: float) -> tuple[int, float]:
    """The angle at which labels fit above their columns, and the room that each then takes."""
    each = width / max(1, len(labels))
    widest = 0.55 * line * max((text_cells(label) for label in labels), default=0)
    if widest < each or widest <= line:  # a single letter needs no more room upright than turned
        return 0, max(widest, 0.7 * line)
    return (45, 1.5 * line) if 1.5 * line <= each else (90, line)


def _label_rows(axes: Axes, labels: Sequence[str], places: Sequence[int]) -> None:
    axes.set_yticks(places, [labels[place] for place in places])


def _label_columns(axes: Axes, labels: Sequence[str], places: Sequence[int], angle: int, top: bool) -> None:
    """Slanted labels begin at their column above the matrix, and end at it below."""
    slanted: dict[str, Any] = {"ha": "left" if top else "right", "rotation_mode": "anchor"}
    axes.set_xticks(places, [labels[place] for place in places], rotation=angle, **(slanted if angle == 45 else {}))


def _longest(labels: Sequence[str]) -> Sequence[int]:
    return sorted(range(len(labels)), key=lambda place: text_cells(labels[place]))[-1:]
