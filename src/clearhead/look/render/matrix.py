"""Matrices as coloured cells: one of them large, or many small ones, with tokens at the edges where they fit.

T rows, S columns, H heads
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.render.figure import (
    GREY,
    INK,
    NARROW,
    PALE,
    SLIDE,
    Figure,
    axes_font_size,
    axes_size,
    font_size,
    max_height,
    new_figure,
)
from clearhead.look.render.labels import LINE, SMALLEST, label_all_edges, label_edges, label_step, token_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure as MplFigure
    from matplotlib.image import AxesImage

Window = tuple[int, int] | None  # tokens from the first index up to, but not including, the second; None = all
Grid = Sequence[Sequence[Tensor]]  # rows of matrices (T, S)

MANY_TOKENS = 200  # beyond, a cell is smaller than a pixel on most screens
LABELLED = 8  # small multiples whose rows and columns are labelled; with more there is no room


@dataclass(frozen=True)
class Scale:
    """The colour of a number: blue that deepens from 0, or blue above and red below 0, here and in the pages."""

    low: float
    high: float

    @classmethod
    def of(cls, *values: Tensor) -> Scale:
        """The scale that holds all finite numbers: from 0, or symmetric around 0 if any is negative."""
        finite = torch.cat([each[each.isfinite()].flatten().float() for each in values])
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
        if low < 0:
            most = max(-low, high)
            return cls(-most, most)
        return cls(0.0, high or 1.0)

    @property
    def colormap(self) -> Colormap:
        """Safe for colour-blind readers; masked cells are pale grey."""
        from matplotlib import colormaps

        return colormaps["RdBu" if self.low < 0 else "Blues"].with_extremes(bad=PALE)

    def text_colour(self, number: float) -> str:
        """White or dark: what can be read on the colour of a number."""
        span = self.high - self.low
        red, green, blue, _ = self.colormap((number - self.low) / span if span else 0.0)
        return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.52 else INK


def window_slice(window: Window, count: int, what: str) -> slice:
    """The tokens that are shown; warns if they are too many to be told apart."""
    if window is None:
        if count > MANY_TOKENS:
            warnings.warn(
                f"{count} {what} are more than can be told apart: show some of them, for example {what}=10:40",
                stacklevel=3,
            )
        return slice(0, count)
    first, end = window
    if not 0 <= first < min(end, count):
        raise ConfigError(f"there are no {what} {first}:{end}: there are {count}, counted from 0")
    return slice(first, min(end, count))


# --- one matrix ---


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
    """values (T, S) as one large matrix; cells are grey where visible (T, S) is False."""
    if values.shape != (len(rows), len(columns)) or not values.numel():
        raise ShapeError(
            f"a matrix of shape {tuple(values.shape)} cannot be drawn with {len(rows)} row and {len(columns)} column "
            f"names: give one name for each row and column, and at least one of both"
        )
    line = font_size(width) / 72
    height = min(max_height(width, 1.0), max(1.1 * width / 3, 9 * line + 2.2 * line * len(rows)))
    with new_figure(width, height) as fig:
        axes = fig.add_subplot()
        scale = scale or Scale.of(values)
        image = draw_matrix(axes, values, scale, visible)
        draw_colorbar(fig, image, axes, label)
        if title:
            axes.set_title(title, loc="left", pad=0.8 * font_size(width))
        label_edges(axes, rows, columns)
        write_numbers(axes, values, scale, visible)
    return Figure(fig)


def draw_matrix(axes: Axes, values: Tensor, scale: Scale, visible: Tensor | None = None) -> AxesImage:
    """The coloured cells alone; grey where not visible, or not finite."""
    shown = values.detach().float().cpu()
    hidden = ~shown.isfinite() if visible is None else ~visible.cpu()
    shown = shown.masked_fill(hidden, torch.nan)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[])
    return axes.imshow(
        shown.numpy(), cmap=scale.colormap, vmin=scale.low, vmax=scale.high, aspect="auto", interpolation="nearest"
    )


def draw_colorbar(fig: MplFigure, image: ScalarMappable, beside: Any, label: str, **layout: Any) -> None:
    """The colour scale beside one plot or several; `layout` is passed to matplotlib's colorbar."""
    from matplotlib.ticker import MaxNLocator

    usual = {"shrink": 0.85, "aspect": 28, "pad": 0.02, "ticks": MaxNLocator(4)}
    bar = fig.colorbar(image, ax=beside, **{**usual, **layout})
    bar.set_label(label, loc="left" if layout.get("location") == "bottom" else "center")
    bar.ax.spines[:].set_visible(False)
    bar.ax.tick_params(length=0)


def write_numbers(axes: Axes, values: Tensor, scale: Scale, visible: Tensor | None = None) -> None:
    """Write the larger numbers into their cells, if the cells have room for all of them."""
    most = max(abs(scale.low), scale.high)
    shown = [
        (i, j, number)
        for i, row in enumerate(values.tolist())
        for j, number in enumerate(row)
        if 0.1 * most <= abs(number) < math.inf and (visible is None or visible[i, j])
    ]
    width, height = axes_size(axes)
    longest = max((len(format_number(number, most)) for *_, number in shown), default=1)
    usual = axes_font_size(axes)
    size = min(0.8 * usual, width / values.size(1) / (0.66 * longest), height / values.size(0) / 1.2)
    if size < 0.62 * usual:
        return
    for i, j, number in shown:
        text, colour = format_number(number, most), scale.text_colour(number)
        axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=size)


def format_number(number: float, most: float) -> str:
    """A number with as many decimals as tell the numbers of a matrix apart whose largest is `most`.

    >>> format_number(0.123, 1.0), format_number(-2.34, 27.5), format_number(0.0123, 0.05)
    ('0.12', '-2.3', '0.012')
    """
    decimals = 3 if most < 0.1 else 2 if most < 10 else 1 if most < 100 else 0
    return f"{number:.{decimals}f}"


# --- many small matrices ---


def small_multiples(
    matrices: Sequence[Tensor],
    names: Sequence[str],
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    visible: Tensor | None = None,
    title: str = "",
    label: str = "attention weight",
    width: float = SLIDE,
) -> Figure:
    """Matrices (T, S) on one colour scale, each under its name, with row and column labels where there is room."""
    if not matrices:
        raise ShapeError("there is no matrix to draw: give at least one")
    # On a slide about twice as many across as down, in a column as many; few cells of the grid stay empty.
    down = math.ceil(len(matrices) / math.ceil(math.sqrt((2 if width > NARROW else 1) * len(matrices))))
    across = math.ceil(len(matrices) / down)
    grid = [matrices[first : first + across] for first in range(0, len(matrices), across)]
    with new_figure(width, _grid_height(grid, width)) as fig:
        plots = _draw_grid(fig, grid, visible, title, label)
        for axes, name in zip(plots.flat, names, strict=False):
            axes.set_title(token_label(name, 24), fontsize=0.9 * font_size(width), pad=3)
        if len(matrices) <= LABELLED:
            _label_outer(plots, rows, columns, len(matrices))
    return Figure(fig)


def layer_head_grid(
    layers: Sequence[Tensor],
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    visible: Tensor | None = None,
    title: str = "",
    width: float = SLIDE,
) -> Figure:
    """Weights (H, T, S) of every layer: a row of matrices for each layer, a column for each head.

    The tokens stand beside the first matrices and below the last, where all of them have room.
    """
    if not layers:
        raise ShapeError("there is no layer to draw: give the weights of at least one")
    grid = [list(layer) for layer in layers]
    with new_figure(width, _grid_height(grid, width)) as fig:
        plots = _draw_grid(fig, grid, visible, title, "attention weight")
        size = 0.9 * font_size(width)
        wide, high = 0.8 * fig.get_size_inches() * 72
        has_room = wide / len(plots[0]) > 4.5 * size  # for the word as well as the number
        for head in range(0, len(plots[0]), label_step(len(plots[0]), wide, 1.5 * size)):
            plots[0][head].set_title(f"head {head}" if has_room or head == 0 else f"{head}", fontsize=size, pad=3)
        for layer in range(0, len(plots), label_step(len(plots), high, 1.3 * size)):
            plots[layer][0].set_ylabel(f"layer {layer}", fontsize=size, rotation=0, ha="right", va="center")
        down, across = wide / len(plots[0]) / max(1, len(columns)), high / len(plots) / max(1, len(rows))
        if min(down, across) >= LINE * SMALLEST * size:
            _label_outer(plots, rows, columns, plots.size)
    return Figure(fig)


def _draw_grid(fig: MplFigure, grid: Grid, visible: Tensor | None, title: str, label: str) -> Any:
    """Draw the matrices and their colour scale -> the array of axes."""
    scale = Scale.of(*(matrix for line in grid for matrix in line))
    plots = fig.subplots(len(grid), max(len(line) for line in grid), squeeze=False)
    for axes in plots.flat:
        axes.set_visible(False)
    for i, line in enumerate(grid):
        for axes, matrix in zip(plots[i], line, strict=False):
            axes.set_visible(True)
            image = draw_matrix(axes, matrix, scale, visible)
            axes.spines[:].set(visible=True, linewidth=0.4, color=GREY)
    draw_colorbar(fig, image, plots, label)
    if title:
        fig.suptitle(title, x=0.01, ha="left")
    return plots


def _grid_height(grid: Grid, width: float) -> float:
    """Cells about square, within the slide."""
    T, S = grid[0][0].shape
    each = 0.85 * width / max(len(line) for line in grid)
    height = len(grid) * each * min(1.2, max(0.5, T / S)) + 5 * font_size(width) / 72
    return min(height, max_height(width, 1.3))


def _label_outer(plots: Any, rows: Sequence[str], columns: Sequence[str], count: int) -> None:
    """Label only the left and the lowest matrices: the labels are the same for all."""
    across = plots.shape[1]
    lowest = range(max(0, count - across), count)
    outer = [place for place in range(count) if place % across == 0 or place in lowest]
    label_all_edges(
        [
            (plots.flat[place], rows if place % across == 0 else (), columns if place in lowest else ())
            for place in outer
        ],
        top=False,
    )
