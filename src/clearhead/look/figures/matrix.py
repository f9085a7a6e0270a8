"""A matrix as coloured cells, with its words at the edges and its numbers where there is room.

T rows, S columns
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure as Page
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.figures.edges import letters_of, name_edges, size_of
from clearhead.look.figures.sheet import INK, PALE, SLIDE, Figure, letter_size, sheet, tallest


@dataclass(frozen=True)
class Scale:
    """Which colour a number has: blue that deepens from 0, or red above and blue below 0."""

    low: float
    high: float

    @classmethod
    def of(cls, *values: Tensor) -> Scale:
        """The scale that holds all numbers; weights of attention, which are never negative, begin at 0."""
        finite = torch.cat([each[each.isfinite()].flatten().float() for each in values])
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
        if low < 0:
            most = max(-low, high)
            return cls(-most, most)
        return cls(0.0, high or 1.0)

    @property
    def colours(self) -> Colormap:
        """Safe for readers who see no difference between red and green; what may not be seen is pale grey."""
        from matplotlib import colormaps

        return colormaps["RdBu_r" if self.low < 0 else "Blues"].with_extremes(bad=PALE)

    def ink(self, number: float) -> str:
        """The colour of letters that can be read on a number's colour."""
        span = self.high - self.low
        red, green, blue, _ = self.colours((number - self.low) / span if span else 0.0)
        return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.52 else INK


def heatmap(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    visible: Tensor | None = None,
    title: str = "",
    label: str = "attention weight",
    width: float = SLIDE,
    scale: Scale | None = None,
) -> Figure:
    """values (T, S) as one large matrix; where visible (T, S) is False nothing could be seen, and the cell is grey."""
    fit(values, rows, columns)
    with sheet(width, _height(len(rows), width)) as page:
        axes = page.add_subplot()
        scale = scale or Scale.of(values)
        image = draw_matrix(axes, values, scale, visible)
        draw_key(page, image, axes, label)
        if title:
            axes.set_title(title, loc="left", pad=0.8 * letter_size(width))
        name_edges(axes, rows, columns)
        write_numbers(axes, values, scale, visible)
    return Figure(page)


def save_heatmap(path: Path, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str = "") -> None:
    """weights (T, S) with a word for each row and column, as SVG, PDF or PNG."""
    heatmap(weights, rows, columns, title=title).save(path)


def draw_matrix(axes: Axes, values: Tensor, scale: Scale, visible: Tensor | None = None) -> AxesImage:
    """The coloured cells alone; what is not visible, or -∞, is grey."""
    shown = values.detach().float().cpu()
    hidden = ~shown.isfinite() if visible is None else ~visible.cpu()
    shown = shown.masked_fill(hidden, torch.nan)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[])
    return axes.imshow(
        shown.numpy(), cmap=scale.colours, vmin=scale.low, vmax=scale.high, aspect="auto", interpolation="nearest"
    )


def draw_key(page: Page, image: ScalarMappable, beside: Any, label: str, **places: Any) -> None:
    """Which colour is which number, beside one matrix or several; `places` are those of matplotlib's colour bars."""
    usual = {"shrink": 0.85, "aspect": 28, "pad": 0.02, "ticks": MaxNLocator(4)}
    key = page.colorbar(image, ax=beside, **{**usual, **places})
    key.set_label(label, loc="left" if places.get("location") == "bottom" else "center")
    key.ax.spines[:].set_visible(False)
    key.ax.tick_params(length=0)


def write_numbers(axes: Axes, values: Tensor, scale: Scale, visible: Tensor | None = None) -> None:
    """The larger numbers, where the cells have room for all of them."""
    most = max(abs(scale.low), scale.high)
    shown = [
        (i, j, number)
        for i, row in enumerate(values.tolist())
        for j, number in enumerate(row)
        if 0.1 * most <= abs(number) < math.inf and (visible is None or visible[i, j])
    ]
    width, height = size_of(axes)
    longest = max((len(short(number, most)) for *_, number in shown), default=1)
    letters = letters_of(axes)
    size = min(0.8 * letters, width / values.size(1) / (0.66 * longest), height / values.size(0) / 1.2)
    if size < 0.62 * letters:
        return
    for i, j, number in shown:
        axes.text(j, i, short(number, most), ha="center", va="center", color=scale.ink(number), fontsize=size)


def short(number: float, most: float) -> str:
    """As many decimals as tell the numbers of a matrix apart whose largest is `most`.

    >>> short(0.123, 1.0), short(-2.34, 27.5), short(0.0123, 0.05)
    ('0.12', '-2.3', '0.012')
    """
    decimals = 3 if most < 0.1 else 2 if most < 10 else 1 if most < 100 else 0
    return f"{number:.{decimals}f}"


def fit(values: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """A word for each row and each column, or the sentence that says what is missing."""
    if values.shape != (len(rows), len(columns)) or not values.numel():
        raise ShapeError(
            f"a matrix of shape {tuple(values.shape)} cannot be drawn with {len(rows)} row and {len(columns)} column "
            f"names: give one name for each row and column, and at least one of both"
        )


def _height(rows: int, width: float) -> float:
    """As high as its rows need, within the slide; in a column of a paper it may be as high as it is wide."""
    line = letter_size(width) / 72
    most = tallest(width, 1.0)
    return min(most, max(1.1 * width / 3, 9 * line + 2.2 * line * rows))
