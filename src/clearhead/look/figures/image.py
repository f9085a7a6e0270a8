"""Over an image: where an answer came from, patch by patch, and the patterns that a patch is compared with.

rows × columns of patches
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Page
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.figures.matrix import draw_key
from clearhead.look.figures.sheet import NARROW, SLIDE, Figure, letter_size, sheet, tallest

COLOURS_OVER = "cividis"


def over_image(image: Tensor, maps: Mapping[str, Tensor], *, title: str = "", width: float = SLIDE) -> Figure:
    """image (height, width, channels) uint8, and maps (rows, columns) by name: the image, then each map over it.

    Each map has its own scale: dark is nothing, bright is its largest share.
    """
    if not maps:
        raise ShapeError("there is nothing to lay over the image: give at least one map of its patches")
    count = 1 + len(maps)
    across = _across(count, 6 if width > NARROW else 3)
    each = 0.88 * width / across * image.size(0) / image.size(1) + 2.2 * letter_size(width) / 72
    with sheet(width, min(tallest(width, 1.8), -(-count // across) * each + 2.5 * letter_size(width) / 72)) as page:
        places = _places(page, count, across, title)
        _draw_image(places.flat[0], image)
        places.flat[0].set_title("image", fontsize=0.9 * letter_size(width), pad=3)
        for axes, (name, shares) in zip(places.flat[1:], maps.items(), strict=False):
            _draw_over(axes, image, shares)
            axes.set_title(name, fontsize=0.9 * letter_size(width), pad=3)
        key = ScalarMappable(Normalize(0, 1), COLOURS_OVER)
        draw_key(page, key, places, "relative share", ticks=[0, 0.5, 1])
    return Figure(page)


def _across(count: int, most: int) -> int:
    """So many beside each other that the rows are as full as can be."""
    return -(-count // -(-count // most))


def _places(page: Page, count: int, across: int, title: str) -> Any:
    """Empty axes in rows."""
    if title:
        page.suptitle(title, x=0.01, ha="left")
    places = page.subplots(-(-count // across), across, squeeze=False)
    for axes in places.flat:
        axes.set_axis_off()
    return places


def _draw_image(axes: Axes, image: Tensor) -> None:
    pixels = image.expand(-1, -1, 3) if image.size(-1) == 1 else image
    axes.imshow(pixels.numpy(), interpolation="nearest")


def _draw_over(axes: Axes, image: Tensor, shares: Tensor) -> None:
    """The map in colours, and the image's own light and dark through it."""
    height, width = image.shape[:2]
    grey = image.float().mean(-1) / 255
    axes.imshow(grey.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.imshow(
        shares.float().numpy(),
        cmap=COLOURS_OVER,
        vmin=0,
        vmax=float(shares.max()) or 1.0,
        alpha=0.75,
        interpolation="nearest",
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
    )


def components(patterns: Tensor, shares: Tensor, *, title: str = "", width: float = SLIDE) -> Figure:
    """patterns (N, height, width, channels) and the share of the variance that each explains, (N,)."""
    count = len(patterns)
    if patterns.dim() != 4 or count != shares.numel() or not count:
        raise ShapeError(f"{tuple(patterns.shape)} patterns do not fit {shares.numel()} shares: give one for each")
    across = _across(count, 8 if width > NARROW else 4)
    height = -(-count // across) * (0.95 * width / across + 1.8 * letter_size(width) / 72) + 0.3
    with sheet(width, min(tallest(width, 1.8), height)) as page:
        places = _places(page, count, across, title)
        for axes, pattern, share in zip(places.flat, patterns, shares.tolist(), strict=False):
            _draw_pattern(axes, pattern)
            axes.set_title(f"{share:.0%}", fontsize=0.9 * letter_size(width), pad=3)
    return Figure(page)


def _draw_pattern(axes: Axes, pattern: Tensor) -> None:
    """(height, width, channels): red and blue around 0 for one channel, colours around grey for three."""
    most = float(pattern.abs().max()) or 1.0
    if pattern.size(-1) == 3:
        axes.imshow((pattern / most / 2 + 0.5).clamp(0, 1).numpy(), interpolation="nearest")
    else:
        signed = torch.as_tensor(pattern).mean(-1)
        axes.imshow(signed.numpy(), cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
