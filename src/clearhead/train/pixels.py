"""Images -> arrays of one size -> tensors.

N images, C channels
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from clearhead.data import pixels
from clearhead.errors import DataError
from clearhead.models.build import Sizes
from clearhead.run import ModelMeta

Pixels = NDArray[np.uint8]  # (N, height, width, C)

# How far `moved` goes with amount 1.
TURN = 0.5  # radians
GROW = 0.3  # of the size; the same for shear
SHIFT = 0.3  # of half the image


def load_pixels(images: Sequence[Any | Path], like: Pixels | None = None) -> Pixels:
    """All images in one array, of the size and channels of the first, or of those in `like`."""
    height, width, channels = pixels(images[0]).shape if like is None else like.shape[1:]
    square = height if height == width else None  # others are not scaled, so they must be of one size
    loaded = [pixels(image, size=square, channels=channels) for image in images]
    for image, array in zip(images, loaded, strict=True):
        if array.shape != (height, width, channels):
            found = " × ".join(map(str, array.shape[:2]))
            where = image if isinstance(image, Path) else None
            raise DataError(f"is {found} pixels where others are {height} × {width}; scale them first", path=where)
    return np.stack(loaded)


def expected(meta: ModelMeta | None) -> Pixels | None:
    """No images, of the size that a finished model has seen: what others are to be like."""
    sizes = meta and meta.sizes
    return np.empty((0, sizes.height, sizes.width, sizes.channels), np.uint8) if sizes else None


def normalised(images: Pixels) -> Tensor:
    """(B, height, width, C) bytes -> (B, C, height, width) between -1 and 1."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def moved(images: Tensor, amount: float) -> Tensor:
    """(B, C, height, width), each image turned, scaled, sheared and shifted a little at random."""
    turn, shear, wide, high, right, down = torch.empty(6, len(images)).uniform_(-amount, amount)
    cos, sin = torch.cos(TURN * turn), torch.sin(TURN * turn)
    wide, high = 1 + GROW * wide, 1 + GROW * high
    across = torch.stack([wide * cos, -wide * sin + GROW * shear, SHIFT * right], -1)  # (B, 3)
    along = torch.stack([high * sin, high * cos, SHIFT * down], -1)
    grid = F.affine_grid(torch.stack([across, along], 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def sizes_of(images: Pixels, **others: int) -> Sizes:
    """The sizes that a model of these images has."""
    _, height, width, channels = images.shape
    return Sizes(channels=channels, height=height, width=width, **others)
