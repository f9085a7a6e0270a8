"""Images -> arrays of one size -> tensors.

N images, C channels
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from clearhead.data import images as data_images
from clearhead.models.build import Sizes
from clearhead.run import ModelMeta

Pixels = NDArray[np.uint8]  # (N, height, width, C)

# How far `moved` goes with amount 1.
TURN = 0.5  # radians
GROW = 0.3  # of the size; the same for shear
SHIFT = 0.3  # of half the image


def load_pixels(images: Sequence[Pixels | Path], like: Pixels | None = None) -> Pixels:
    """All images in one array, of the size and channels of the first, or of those in `like`."""
    return data_images.load_pixels(images, None if like is None else like.shape[1:])


def expected(meta: ModelMeta | None) -> Pixels | None:
    """No images, of the size that a finished model has seen: what others are to be like."""
    sizes = meta and meta.sizes
    return np.empty((0, sizes.height, sizes.width, sizes.channels), np.uint8) if sizes else None


def normalised(images: Pixels) -> Tensor:
    """(B, height, width, C) bytes -> (B, C, height, width) between -1 and 1."""
    return torch.from_numpy(data_images.normalize(images))


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
