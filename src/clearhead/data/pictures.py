"""Opening one picture with Pillow, which only those who have images need to install."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.data.examples import Pixels
from clearhead.data.files import opened
from clearhead.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 64_000_000  # more is a decompression bomb, or not meant for a small model

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_GREY = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"})


def pixels(image: Pixels | Path, size: int | None = None, channels: int | None = None) -> Pixels:
    """An image as (height, width, channels) bytes; `size` cuts out the middle square and scales it."""
    if not isinstance(image, Path) and _fits(image, size, channels):
        return image
    with open_picture(image) as picture:
        from PIL import ImageOps

        upright = ImageOps.exif_transpose(picture)
        upright = _eight_bits(upright).convert(_MODES[channels or _channels(upright)])
        if size is not None:
            upright = ImageOps.fit(upright, (size, size))
        array: Pixels = np.array(upright, dtype=np.uint8)
    return array[:, :, None] if array.ndim == 2 else array


def shape(image: Pixels | Path) -> tuple[int, int, int]:
    """(height, width, channels) of an image; of a file only the beginning is read."""
    if not isinstance(image, Path):
        height, width, channels = image.shape
        return height, width, channels
    with open_picture(image) as picture:
        return picture.height, picture.width, _channels(picture)


def _fits(image: Pixels, size: int | None, channels: int | None) -> bool:
    height, width, depth = image.shape
    return (size is None or (height, width) == (size, size)) and channels in (None, depth)


@contextmanager
def open_picture(image: Pixels | Path) -> Iterator[Image]:
    """A Pillow image; a file that is none, or far too large, is an error that names it."""
    library = _pillow()
    if not isinstance(image, Path):
        yield library.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
        return
    with opened(image) as stream:
        try:
            with _bombs_are_errors(library):
                picture = library.open(stream)
            if picture.width * picture.height > MOST_PIXELS:
                raise _too_large(image, f"{picture.width:,} × {picture.height:,} pixels")
            yield picture
        except DataError:
            raise
        except (library.DecompressionBombError, library.DecompressionBombWarning):
            raise _too_large(image, "far more pixels") from None
        except library.UnidentifiedImageError:
            raise DataError("is not an image", path=image) from None
        except (OSError, SyntaxError, ValueError, EOFError, struct.error) as problem:
            raise DataError(f"is a damaged image ({problem})", path=image) from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("pictures need Pillow: pip install 'clearhead[vision]'") from None
    return Image


@contextmanager
def _bombs_are_errors(library: Any) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", library.DecompressionBombWarning)
        yield


def _too_large(path: Path, what: str) -> DataError:
    return DataError(f"has {what}, where a picture may have {MOST_PIXELS // 10**6} million; scale it down", path=path)


def _channels(picture: Image) -> int:
    return 1 if picture.mode in _GREY else 3


def _eight_bits(picture: Image) -> Image:
    """Sixteen-bit grey values scaled to eight; Pillow's own conversion would clip them to white."""
    if not picture.mode.startswith("I;16"):
        return picture
    return _pillow().fromarray((np.asarray(picture) >> 8).astype(np.uint8))  # type: ignore[no-any-return]
