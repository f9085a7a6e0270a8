"""Attention as lines between two columns of words: from each query at the left to the keys it looks at.

H heads, T queries, S keys
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Page
from torch import Tensor

from clearhead.look.figures.edges import Window, cells, every, part, readable
from clearhead.look.figures.heads import KINDS
from clearhead.look.figures.sheet import COLOURS, SLIDE, Figure, letter_size, sheet, tallest
from clearhead.look.look import Look

FAINTEST = 0.02  # lines of a smaller weight are not drawn


def lines(
    look: Look,
    layer: int,
    head: int | None = None,
    kind: str | None = None,
    *,
    query: int | None = None,
    rows: Window = None,
    columns: Window = None,
    width: float = SLIDE,
) -> Figure:
    """The lines of one head, or of all heads of a layer in their own colours; of one query, or of all."""
    seen = look.pick(kind, layer, head, query)
    queries, keys = part(rows, len(seen.rows), "rows"), part(columns, len(seen.columns), "columns")
    weights = seen.weights[layer]
    if query is not None:
        weights = weights * (torch.arange(len(seen.rows)) == query).unsqueeze(-1)
    chosen = range(seen.heads) if head is None else [head]
    name = KINDS.get(look.kind(kind), look.kind(kind))
    title = f"{name}, layer {layer}" + ("" if head is None else f", head {head}")
    shown = weights[list(chosen)][:, queries, keys]
    return draw_lines(shown, chosen, seen.rows[queries], seen.columns[keys], title, width)


def draw_lines(
    weights: Tensor, heads: Sequence[int], rows: Sequence[str], columns: Sequence[str], title: str, width: float = SLIDE
) -> Figure:
    """weights (H, T, S), the number of each head, and the words of both columns."""
    most, line = max(len(rows), len(columns)), letter_size(width) / 72
    height = min(tallest(width, 1.5), 1.6 * line * most + (5 + 1.5 * (len(heads) > 1)) * line)
    with sheet(width, height) as page:
        axes = page.add_subplot()
        side = _side([*rows, *columns], width)
        axes.set(xlim=(-side, 1 + side), ylim=(most - 0.5, -0.5), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(title, loc="left")
        for number, each in zip(heads, weights, strict=True):
            axes.add_collection(_bundle(each, _centred(rows, most), _centred(columns, most), number, width))
        step = every(most, 72 * (height - 4 * line), 1.15 * 72 * line)
        _write(axes, rows, _centred(rows, most), step, 0)
        _write(axes, columns, _centred(columns, most), step, 1)
        if len(heads) > 1:
            _write_key(page, heads, letter_size(width))
    return Figure(page)


def _side(words: Sequence[str], width: float) -> float:
    """The room for words at one side, where the lines are 1 wide."""
    longest = max(cells(readable(word)) for word in words)
    share = min(0.35, max(0.12, 0.62 * longest * letter_size(width) / 72 / width))
    return share / (1 - 2 * share)


def _centred(words: Sequence[str], most: int) -> float:
    """How far down the first word stands, so that the shorter column is in the middle."""
    return (most - len(words)) / 2


def _bundle(weights: Tensor, left: float, right: float, head: int, width: float) -> LineCollection:
    """weights (T, S) as lines that are the stronger, the larger the weight."""
    places = (weights > FAINTEST).nonzero().tolist()
    ends = [((0, left + i), (1, right + j)) for i, j in places]
    strengths = [float(weights[i, j]) for i, j in places]
    red, green, blue = to_rgb(COLOURS[head % len(COLOURS)])
    colours = [(red, green, blue, min(1.0, strength**0.8)) for strength in strengths]
    thick = [width / 10 * (0.4 + 3.6 * strength) for strength in strengths]
    return LineCollection(ends, colors=colours, linewidths=thick, capstyle="round")


def _write(axes: Axes, words: Sequence[str], first: float, step: int, side: int) -> None:
    for place in range(0, len(words), step):
        x, where = (-0.02, "right") if side == 0 else (1.02, "left")
        axes.text(x, first + place, readable(words[place]), ha=where, va="center")


def _write_key(page: Page, heads: Sequence[int], size: float) -> None:
    """Which colour is which head; nine heads and more share colours."""
    from matplotlib.lines import Line2D

    shown = [Line2D([], [], color=COLOURS[head % len(COLOURS)], lw=size / 4, label=f"head {head}") for head in heads]
    page.legend(handles=shown, loc="outside lower center", ncols=min(4, len(shown)), frameon=False, handlelength=1.2)
