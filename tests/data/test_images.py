"""Images in every form that a user has them, as arrays of one size and as the floats that a model reads."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clearhead.data.images import common_shape, image_digest, load_pixels, normalize, pixels
from clearhead.errors import DataError


def array(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


@pytest.mark.parametrize("size", [None, 5])
def test_all_forms_of_an_image_give_the_same_pixels(tmp_path: Path, size: int | None) -> None:
    values = array(7, 11)
    image = Image.fromarray(values)
    path = tmp_path / "a.png"
    path.write_bytes(encoded(image))
    expected = pixels(values, size=size)
    assert expected.shape == ((7, 11, 3) if size is None else (5, 5, 3))
    for form in (
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        io.BytesIO(path.read_bytes()),
        image,
    ):
        assert np.array_equal(pixels(form, size=size), expected)
    with path.open("rb") as file:
        assert np.array_equal(pixels(file, size=size), expected)


def test_grey_arrays_may_have_two_axes() -> None:
    values = array(3, 5, 1)
    assert np.array_equal(pixels(values[:, :, 0]), values)
    assert pixels(values[:, :, 0], channels=3).shape == (3, 5, 3)


def test_a_palette_image_has_its_colours() -> None:
    image = Image.new("RGB", (4, 3), (10, 200, 30)).convert("P", palette=Image.Palette.ADAPTIVE)
    assert pixels(image)[0, 0].tolist() == [10, 200, 30]


def test_an_array_that_fits_is_not_copied() -> None:
    values = array(4, 4)
    assert pixels(values, size=4, channels=3) is values


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no pixels", "^image: is not an image$"),
        (encoded(Image.new("RGB", (64, 64)), "JPEG")[:300], "^image: is a damaged image"),
        (encoded(Image.new("1", (9000, 9000))), "^image: has 9,000 × 9,000 pixels, over the limit of 64 million"),
    ],
)
def test_bytes_that_are_no_good_are_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        pixels(content, size=8)


def test_images_of_several_sizes_become_squares(tmp_path: Path) -> None:
    path = tmp_path / "b.png"
    Image.fromarray(array(29, 19)).save(path)
    loaded = load_pixels([array(17, 23, 1), path, path])
    assert (loaded.shape, loaded.dtype) == ((3, 16, 16, 3), np.uint8)  # the median of 17, 19, 19, in eights
    assert np.array_equal(loaded[1], pixels(path, size=16, channels=3))
    assert load_pixels([array(300, 200), array(100, 700)]).shape == (2, 64, 64, 3)
    assert load_pixels([array(4, 5), array(5, 4)]).shape == (2, 8, 8, 3)
    assert common_shape([array(4, 5), path], size=10) == (10, 10, 3)


def test_images_of_one_size_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "b.png"
    Image.fromarray(array(9, 6)).save(path)
    loaded = load_pixels([array(9, 6), path])
    assert np.array_equal(loaded, np.stack([array(9, 6), array(9, 6)]))
    scaled = load_pixels([path], shape=(5, 7, 1))
    assert np.array_equal(scaled[0], pixels(path, size=(5, 7), channels=1))
    assert scaled.shape == (1, 5, 7, 1)


def test_normalised_pixels_are_those_of_torch_to_the_last_bit() -> None:
    images = np.arange(2 * 8 * 16 * 3, dtype=np.uint8).reshape(2, 8, 16, 3)  # every byte
    expected = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)
    found = torch.from_numpy(normalize(images))
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
    assert torch.equal(found, expected)
    assert (found.min(), found.max()) == (-1, 1)


def test_a_digest_is_of_the_content(tmp_path: Path) -> None:
    one, two, other = (tmp_path / name for name in ("a1", "a2", "b"))
    for path in (one, two, other):
        path.write_bytes(path.name[:1].encode())
    assert image_digest(one) == image_digest(two) != image_digest(other)
    values = array(2, 6)
    assert image_digest(values) == image_digest(values.copy()) != image_digest(values.reshape(4, 3, 3))


def test_images_are_read_without_torch() -> None:
    code = "import sys, clearhead.data.images, clearhead.data.readers.images; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
