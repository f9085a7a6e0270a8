"""Maps of patches laid over an image, and small patterns in a grid.

rows × columns of patches
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.render.figure import NARROW, SLIDE, Figure, font_size, max_height, new_figure
from clearhead.look.render.matrix import draw_colorbar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

OVERLAY = "cividis"


def image_overlays(image: Tensor, maps: Mapping[str, Tensor], *, title: str = "", width: float = SLIDE) -> Figure:
    """image (height, width, channels) uint8, maps (rows, columns) by name: the image, then each map over it.

    Each map has its own scale: dark is 0, bright is its largest share.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    if not maps:
        raise ShapeError("there is nothing to lay over the image: give at least one map of its patches")
    count = 1 + len(maps)
    across = _columns(count, 6 if width > NARROW else 3)
    each = 0.88 * width / across * image.size(0) / image.size(1) + 2.2 * font_size(width) / 72
    height = -(-count // across) * each + 2.5 * font_size(width) / 72
    with new_figure(width, min(max_height(width, 1.8), height)) as fig:
        plots = _empty_grid(fig, count, across, title)
        pixels = image.expand(-1, -1, 3) if image.size(-1) == 1 else image
        plots.flat[0].imshow(pixels.numpy(), interpolation="nearest")
        plots.flat[0].set_title("image", fontsize=0.9 * font_size(width), pad=3)
        for axes, (name, shares) in zip(plots.flat[1:], maps.items(), strict=False):
            _draw_overlay(axes, image, shares)
            axes.set_title(name, fontsize=0.9 * font_size(width), pad=3)
        draw_colorbar(fig, ScalarMappable(Normalize(0, 1), OVERLAY), plots, "relative share", ticks=[0, 0.5, 1])
    return Figure(fig)


def pattern_grid(patterns: Tensor, shares: Tensor, *, title: str = "", width: float = SLIDE) -> Figure:
    """patterns (N, height, width, channels), each under the share of the variance that it explains, (N,)."""
    count = len(patterns)
    if patterns.dim() != 4 or count != shares.numel() or not count:
        raise ShapeError(f"{tuple(patterns.shape)} patterns do not fit {shares.numel()} shares: give one for each")
    across = _columns(count, 8 if width > NARROW else 4)
    height = -(-count // across) * (0.95 * width / across + 1.8 * font_size(width) / 72) + 0.3
    with new_figure(width, min(max_height(width, 1.8), height)) as fig:
        plots = _empty_grid(fig, count, across, title)
        for axes, pattern, share in zip(plots.flat, patterns, shares.tolist(), strict=False):
            _draw_pattern(axes, pattern)
            axes.set_title(f"{share:.0%}", fontsize=0.9 * font_size(width), pad=3)
    return Figure(fig)


def _columns(count: int, most: int) -> int:
    """The number of columns, at most `most`, that fills the last row best."""
    return -(-count // -(-count // most))


def _empty_grid(fig: MplFigure, count: int, across: int, title: str) -> Any:
    if title:
        fig.suptitle(title, x=0.01, ha="left")
    plots = fig.subplots(-(-count // across), across, squeeze=False)
    for axes in plots.flat:
        axes.set_axis_off()
    return plots


def _draw_overlay(axes: Axes, image: Tensor, shares: Tensor) -> None:
    height, width = image.shape[:2]
    grey = image.float().mean(-1) / 255
    axes.imshow(grey.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.imshow(
        shares.float().numpy(),
        cmap=OVERLAY,
        vmin=0,
        vmax=float(shares.max()) or 1.0,
        alpha=0.75,
        interpolation="nearest",
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
    )


def _draw_pattern(axes: Axes, pattern: Tensor) -> None:
    """(height, width, channels): blue above and red below 0 for one channel, colours around grey for three."""
    most = float(pattern.abs().max()) or 1.0
    if pattern.size(-1) == 3:
        axes.imshow((pattern / most / 2 + 0.5).clamp(0, 1).numpy(), interpolation="nearest")
    else:
        axes.imshow(pattern.mean(-1).numpy(), cmap="RdBu", vmin=-most, vmax=most, interpolation="nearest")
