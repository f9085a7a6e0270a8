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

from clearhead.data import pixels
from clearhead.errors import DataError
from clearhead.models.build import Sizes
from clearhead.train.run import Facts

Pixels = NDArray[np.uint8]  # (N, height, width, C)


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


def expected(facts: Facts | None) -> Pixels | None:
    """No images, of the size that a finished model has seen: what others are to be like."""
    sizes = facts and facts.sizes
    return np.empty((0, sizes.height, sizes.width, sizes.channels), np.uint8) if sizes else None


def normalised(images: Pixels) -> Tensor:
    """(B, height, width, C) bytes -> (B, C, height, width) between -1 and 1."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def sizes_of(images: Pixels, **others: int) -> Sizes:
    """The sizes that a model of these images has."""
    _, height, width, channels = images.shape
    return Sizes(channels=channels, height=height, width=width, **others)
