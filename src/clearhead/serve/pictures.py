"""Images from the network: what is not plainly a small picture is refused before it is unpacked."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from clearhead.errors import DataError
from clearhead.serve.failures import Refused

if TYPE_CHECKING:
    from clearhead.data.examples import Pixels

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # what Pillow reads by itself, without other programs


def from_base64(text: str) -> bytes:
    """The bytes of an image as JSON carries them, with or without the head of a data URL."""
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, "invalid_image", "image: this is not base64") from None


def read_pixels(model: Any, content: bytes, most: int) -> Pixels:
    """An image file of at most so many pixels, in the size that the model reads."""
    _check(content, most)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "image"
        file.write_bytes(content)
        try:
            found: Pixels = model.pixels(file)
            return found
        except DataError as problem:
            raise Refused(400, "invalid_image", f"image: {problem.message}") from None


def _check(content: bytes, most: int) -> None:
    """Look at the head of a file only."""
    try:
        from PIL import Image
    except ImportError:
        raise Refused(400, "no_images", "this service reads no images: it was installed without Pillow") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                width, height = picture.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("far more", most) from None
    except Exception:  # Pillow raises many kinds on bytes that are no image
        raise Refused(400, "invalid_image", f"image: this is none of {', '.join(FORMATS)}") from None
    if width * height > most:
        raise _too_large(f"{width:,} × {height:,}", most)


def _too_large(found: str, most: int) -> Refused:
    return Refused(400, "image_too_large", f"image: it has {found} pixels, where {most:,} are read; scale it down")
