"""Heads as lines between two columns of tokens: from each query at the left to the keys at the right.

H heads, T queries, S keys
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from clearhead.look.record import KINDS, LookRecord
from clearhead.look.render.figure import COLOURS, SLIDE, Figure, fit_title, font_size, max_height, new_figure
from clearhead.look.render.labels import label_step, text_cells, token_label
from clearhead.look.view import VIEWS, ViewOptions
from clearhead.look.views.heads import Heads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure as MplFigure

FAINTEST = 0.02  # lines of a smaller weight are not drawn


@VIEWS.register("lines")
@dataclass(frozen=True, eq=False)
class Lines(Heads):
    """Where each head looks, as lines between tokens."""

    query: int | None = None  # None = all

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Self:
        seen = look.pick(options.kind, options.layer, options.head)
        layer = seen.layers - 1 if options.layer is None else options.layer
        query = options.query_index(seen.rows)
        look.pick(options.kind, query=query)
        return cls(look, look.kind(options.kind), layer, options.head, options.rows, options.columns, query)

    def figure(self, width: float = SLIDE) -> Figure:
        """The lines of one head, or of all heads of a layer, each in its colour; of one query, or of all."""
        assert self.layer is not None
        seen = self.look.attention[self.kind]
        queries, keys = self._window()
        weights = seen.weights[self.layer]
        if self.query is not None:
            weights = weights * (torch.arange(len(seen.rows)) == self.query).unsqueeze(-1)
        heads = range(seen.heads) if self.head is None else [self.head]
        which = "" if self.head is None else f", head {self.head}"
        name = f"{KINDS.get(self.kind, self.kind)}, layer {self.layer}{which}"
        title = fit_title(name, width, self.look.caption)
        shown = weights[list(heads)][:, queries, keys]
        return draw_lines(shown, heads, seen.rows[queries], seen.columns[keys], title, width)


def draw_lines(
    weights: Tensor, heads: Sequence[int], rows: Sequence[str], columns: Sequence[str], title: str, width: float = SLIDE
) -> Figure:
    """weights (H, T, S), the number of each head, and the tokens of both columns."""
    most, line = max(len(rows), len(columns)), font_size(width) / 72
    height = min(max_height(width, 1.5), 1.6 * line * most + (5 + 1.5 * (len(heads) > 1)) * line)
    with new_figure(width, height) as fig:
        axes = fig.add_subplot()
        side = _side([*rows, *columns], width)
        axes.set(xlim=(-side, 1 + side), ylim=(most - 0.5, -0.5), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(title, loc="left")
        for number, each in zip(heads, weights, strict=True):
            axes.add_collection(_bundle(each, _top(rows, most), _top(columns, most), number, width))
        step = label_step(most, 72 * (height - 4 * line), 1.15 * 72 * line)
        _write_tokens(axes, rows, _top(rows, most), step, left=True)
        _write_tokens(axes, columns, _top(columns, most), step, left=False)
        if len(heads) > 1:
            _write_legend(fig, heads, font_size(width))
    return Figure(fig)


def _side(tokens: Sequence[str], width: float) -> float:
    """The room for tokens at one side, where the lines are 1 wide."""
    longest = max(text_cells(token_label(token)) for token in tokens)
    share = min(0.35, max(0.12, 0.62 * longest * font_size(width) / 72 / width))
    return share / (1 - 2 * share)


def _top(tokens: Sequence[str], most: int) -> float:
    """The height of the first token, so that the shorter column is centred."""
    return (most - len(tokens)) / 2


def _bundle(weights: Tensor, left: float, right: float, head: int, width: float) -> LineCollection:
    """weights (T, S) as lines: the larger the weight, the thicker and darker."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    places = (weights > FAINTEST).nonzero().tolist()
    ends = [((0, left + i), (1, right + j)) for i, j in places]
    strengths = [float(weights[i, j]) for i, j in places]
    red, green, blue = to_rgb(COLOURS[head % len(COLOURS)])
    colours = [(red, green, blue, min(1.0, strength**0.8)) for strength in strengths]
    thickness = [width / 10 * (0.4 + 3.6 * strength) for strength in strengths]
    return LineCollection(ends, colors=colours, linewidths=thickness, capstyle="round")


def _write_tokens(axes: Axes, tokens: Sequence[str], top: float, step: int, left: bool) -> None:
    for place in range(0, len(tokens), step):
        x, align = (-0.02, "right") if left else (1.02, "left")
        axes.text(x, top + place, token_label(tokens[place]), ha=align, va="center")


def _write_legend(fig: MplFigure, heads: Sequence[int], size: float) -> None:
    """The colour of each head; from the ninth head on colours repeat."""
    from matplotlib.lines import Line2D

    shown = [Line2D([], [], color=COLOURS[head % len(COLOURS)], lw=size / 4, label=f"head {head}") for head in heads]
    fig.legend(handles=shown, loc="outside lower center", ncols=min(4, len(shown)), frameon=False, handlelength=1.2)
