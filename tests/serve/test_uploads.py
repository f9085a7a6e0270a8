"""An uploaded image is decoded from its bytes exactly as the file would be from a disk."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearhead import Predictor
from clearhead.serve.errors import RequestError
from clearhead.serve.inputs import from_base64, read_pixels

from .setting import png

EXIF_ORIENTATION = 0x0112


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def noise(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    return np.random.default_rng(3).integers(0, np.iinfo(dtype).max, shape, dtype=dtype)


def turned() -> bytes:
    picture = Image.fromarray(noise(11, 17, 3))
    exif = picture.getexif()
    exif[EXIF_ORIENTATION] = 6
    return encoded(picture, "JPEG", exif=exif)


FILES = {
    "colour": png(),
    "grey": png(mode="L"),
    "transparent": encoded(Image.fromarray(noise(13, 11, 4)), "PNG"),
    "palette": encoded(Image.fromarray(noise(13, 11, 3)).quantize(17), "GIF"),
    "16 bits": encoded(Image.fromarray(noise(13, 11, dtype=np.uint16)), "PNG"),
    "turned by its EXIF": turned(),
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
@pytest.mark.parametrize("name", ["eyes", "painter"])
def test_bytes_give_the_pixels_of_the_file(
    model: Callable[[str], Predictor], tmp_path: Path, name: str, content: bytes
) -> None:
    file = tmp_path / "image"
    file.write_bytes(content)
    found = read_pixels(content, model(name).meta.sizes, max_pixels=1000)
    assert found.dtype == np.uint8
    assert np.array_equal(found, model(name).pixels(file))


def test_no_temporary_file_is_written(model: Callable[[str], Predictor], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a temporary file")

    for name in ("mkdtemp", "_mkstemp_inner"):  # what everything in tempfile calls
        monkeypatch.setattr(f"tempfile.{name}", refuse)
    assert read_pixels(png(), model("eyes").meta.sizes, max_pixels=1000).shape == (10, 10, 1)


def test_the_largest_image_is_just_accepted(model: Callable[[str], Predictor]) -> None:
    sizes = model("eyes").meta.sizes
    assert read_pixels(png(13, 11), sizes, max_pixels=143).shape == (10, 10, 1)
    with pytest.raises(RequestError, match="image: it has 13 × 11 pixels; the limit is 142: scale it down"):
        read_pixels(png(13, 11), sizes, max_pixels=142)


def test_base64_with_and_without_a_data_url() -> None:
    assert from_base64("YWJj") == from_base64("data:image/png;base64,YWJj") == b"abc"
    with pytest.raises(RequestError, match="image: this is not base64"):
        from_base64("a")
