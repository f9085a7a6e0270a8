"""Heads: all heads of a layer, all layers and heads, or one head at several times, as a wall of small multiples.

H heads, T queries, S keys
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure as Page
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.figures.edges import Window, every, name_all, part, readable
from clearhead.look.figures.matrix import Scale, draw_key, draw_matrix, heatmap
from clearhead.look.figures.sheet import GREY, NARROW, SLIDE, Figure, letter_size, sheet, tallest
from clearhead.look.look import Look

KINDS = {
    "encoder.self": "encoder self-attention",
    "decoder.self": "decoder self-attention",
    "decoder.cross": "cross-attention",
}
Grid = Sequence[Sequence[Tensor]]  # rows of matrices (T, S)
NAMED = 8  # matrices of a wall whose rows and columns are named; smaller ones have no room for words


def heads(
    look: Look,
    layer: int | None = None,
    head: int | None = None,
    kind: str | None = None,
    *,
    rows: Window = None,
    columns: Window = None,
    width: float = SLIDE,
) -> Figure:
    """One head of a layer, large; without a head all of the layer, without a layer all there are.

    `rows=(10, 40)` shows the queries from 10 up to and without 40.
    """
    seen = look.pick(kind, layer, head)
    queries, keys = part(rows, len(seen.rows), "rows"), part(columns, len(seen.columns), "columns")
    visible = seen.visible[queries, keys]
    words: dict[str, Any] = {"rows": seen.rows[queries], "columns": seen.columns[keys]}
    shown = [weights[:, queries, keys] for weights in seen.weights]
    name = KINDS.get(look.kind(kind), look.kind(kind))
    if layer is None and head is None:
        return layers_and_heads(shown, visible=visible, title=name, width=width)
    if head is None and layer is not None:
        names = [f"head {number}" for number in range(seen.heads)]
        return wall(list(shown[layer]), names, visible=visible, title=f"{name}, layer {layer}", width=width, **words)
    if layer is None:
        names = [f"layer {number}" for number in range(seen.layers)]
        panels = [each[head] for each in shown]
        return wall(panels, names, visible=visible, title=f"{name}, head {head}", width=width, **words)
    title = f"{name}, layer {layer}, head {head}"
    return heatmap(shown[layer][head], visible=visible, title=title, width=width, **words)


def wall(
    panels: Sequence[Tensor],
    names: Sequence[str],
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    visible: Tensor | None = None,
    title: str = "",
    label: str = "attention weight",
    width: float = SLIDE,
) -> Figure:
    """Matrices (T, S) on one scale of colours, each under its name; their words where they have room."""
    if not panels:
        raise ShapeError("there is no matrix to draw: give at least one")
    across = _across(len(panels), width)
    grid = [panels[first : first + across] for first in range(0, len(panels), across)]
    with sheet(width, _height(grid, width)) as page:
        places = _draw(page, grid, visible, title, label)
        for axes, name in zip(places.flat, names, strict=False):
            axes.set_title(readable(name, 24), fontsize=0.9 * letter_size(width), pad=3)
        if len(panels) <= NAMED:
            _name_outer(places, rows, columns, len(panels))
    return Figure(page)


def layers_and_heads(
    layers: Sequence[Tensor], *, visible: Tensor | None = None, title: str = "", width: float = SLIDE
) -> Figure:
    """Weights (H, T, S) of every layer: a row for each layer, a column for each head."""
    if not layers:
        raise ShapeError("there is no layer to draw: give the weights of at least one")
    grid = [list(layer) for layer in layers]
    with sheet(width, _height(grid, width)) as page:
        _count(_draw(page, grid, visible, title, "attention weight"), width)
    return Figure(page)


def _draw(page: Page, grid: Grid, visible: Tensor | None, title: str, label: str) -> Any:
    """The matrices and the key to their colours; an array of axes comes back."""
    scale = Scale.of(*(panel for line in grid for panel in line))
    places = page.subplots(len(grid), max(len(line) for line in grid), squeeze=False)
    for axes in places.flat:
        axes.set_visible(False)
    for i, line in enumerate(grid):
        for axes, panel in zip(places[i], line, strict=False):
            axes.set_visible(True)
            image = draw_matrix(axes, panel, scale, visible)
            axes.spines[:].set(visible=True, linewidth=0.4, color=GREY)
    draw_key(page, image, places, label)
    if title:
        page.suptitle(title, x=0.01, ha="left")
    return places


def _across(count: int, width: float) -> int:
    """On a slide about twice as many beside each other as below each other, in a column as many; few places empty."""
    down = math.ceil(count / math.ceil(math.sqrt((2 if width > NARROW else 1) * count)))
    return math.ceil(count / down)


def _height(grid: Grid, width: float) -> float:
    """Cells about square, within the slide."""
    T, S = grid[0][0].shape
    each = 0.85 * width / max(len(line) for line in grid)
    wanted = len(grid) * each * min(1.2, max(0.5, T / S)) + 5 * letter_size(width) / 72
    return min(wanted, tallest(width, 1.3))


def _count(places: Any, width: float) -> None:
    """Layers at the left and heads at the top, counted from 0, as many as there is room for."""
    size, page = 0.9 * letter_size(width), places[0][0].get_figure()
    wide, high = 0.8 * page.get_size_inches() * 72
    whole = wide / len(places[0]) > 4.5 * size  # room for the word as well as the number
    for head in range(0, len(places[0]), every(len(places[0]), wide, 1.5 * size)):
        places[0][head].set_title(f"head {head}" if whole or head == 0 else f"{head}", fontsize=size, pad=3)
    for layer in range(0, len(places), every(len(places), high, 1.3 * size)):
        places[layer][0].set_ylabel(f"layer {layer}", fontsize=size, rotation=0, ha="right", va="center")


def _name_outer(places: Any, rows: Sequence[str], columns: Sequence[str], count: int) -> None:
    """Words at the left of the first and below the lowest matrices only: they are the same for all."""
    across = places.shape[1]
    lowest = range(max(0, count - across), count)
    outer = [place for place in range(count) if place % across == 0 or place in lowest]
    name_all(
        [
            (places.flat[place], rows if place % across == 0 else (), columns if place in lowest else ())
            for place in outer
        ],
        top=False,
    )
