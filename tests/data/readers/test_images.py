from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearhead.data import pixels, read
from clearhead.data.images import image_shape
from clearhead.errors import DataError

from ..helpers import put, real

RED = np.zeros((4, 6, 3), dtype=np.uint8) + np.array([200, 10, 30], dtype=np.uint8)


def picture(path: Path, array: np.ndarray = RED, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    for number in range(6):
        picture(tmp_path / "cat" / f"{number}.png", RED + np.uint8(number))
        picture(tmp_path / "dog" / f"{number}.JPG", 255 - RED + np.uint8(number))
    put(tmp_path / "cat" / "notes.txt", "not a picture")
    put(tmp_path / "cat" / ".hidden.png", "not a picture")
    return tmp_path


def test_a_folder_for_each_class_stays_closed(classes: Path) -> None:
    dataset = read(classes)
    both = [*dataset.train, *dataset.validation]
    assert dataset.kind == "images"
    assert sorted(example.label for example in both) == ["cat"] * 6 + ["dog"] * 6
    assert all(isinstance(example.image, Path) for example in both)


def test_duplicates_of_a_file_stay_together(classes: Path) -> None:
    for number in range(6):
        put(classes / "copies" / f"{number}.png", (classes / "cat" / f"{number}.png").read_bytes())
    dataset = read(classes, validation=0.5)
    content = [{example.image.read_bytes() for example in part} for part in (dataset.train, dataset.validation)]
    assert not content[0] & content[1]


@pytest.mark.parametrize("name", ["val", "valid", "test"])
def test_train_and_validation_folders(classes: Path, name: str) -> None:
    for part in ("train", name):
        picture(classes / "data" / part / "cat" / "1.png")
    dataset = read(classes / "data")
    assert [[example.label for example in part] for part in (dataset.train, dataset.validation)] == [["cat"], ["cat"]]
    assert name in str(dataset.validation[0].image)


def test_a_class_may_be_called_train(classes: Path) -> None:
    picture(classes / "train" / "1.png")
    assert {example.label for example in read(classes, validation=0).train} == {"cat", "dog", "train"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("which", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", ""])
def test_idx_files_by_either_name_or_their_folder(tmp_path: Path, which: str, pack) -> None:
    array = np.arange(5 * 2 * 3).reshape(5, 2, 3)
    put(tmp_path / "train-images-idx3-ubyte", pack(idx(array)))
    put(tmp_path / "train-labels-idx1-ubyte", pack(idx(np.array([3, 1, 4, 1, 5]))))
    dataset = read(tmp_path / which, validation=0)
    assert (dataset.kind, [example.label for example in dataset.train]) == ("images", ["3", "1", "4", "1", "5"])
    assert dataset.train[2].image.tolist() == array[2, :, :, None].tolist()
    assert dataset.train[2].line == 3


def test_npz_arrays(tmp_path: Path) -> None:
    array = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    np.savez_compressed(tmp_path / "a.npz", images=array, labels=np.array([1, 0]), names=np.array(["cat", "dog"]))
    dataset = read(tmp_path / "a.npz", validation=0)
    assert [example.label for example in dataset.train] == ["dog", "cat"]
    assert (dataset.train[0].image == array[0]).all()


def test_npz_grey_images_get_a_channel(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        np.savez(tmp_path / f"{name}.npz", images=np.zeros((2, 3, 4), np.uint8), labels=np.array(["a", "b"]))
    dataset = read(tmp_path)
    assert dataset.train[0].image.shape == (3, 4, 1)
    assert [example.label for example in dataset.validation] == ["a", "b"]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"images": np.zeros((2, 3, 4), np.uint8)}, r"a\.npz: has no array labels; choose from: images"),
        ({"images": np.zeros((2, 3, 4)), "labels": np.zeros(2)}, r"images of float64 \(2, 3, 4\); uint8 \(N, H, W\)"),
        ({"images": np.zeros((2, 3), np.uint8), "labels": np.zeros(2)}, r"images of uint8 \(2, 3\)"),
        ({"images": np.zeros((2, 3, 4), np.uint8), "labels": np.zeros(3)}, "has 2 images and 3 labels"),
        ({"images": np.zeros((1, 3, 4), np.uint8), "labels": np.array([2]), "names": np.array(["a"])}, "not one of"),
        ({"images": np.array([None]), "labels": np.zeros(1)}, "is not an npz file of plain arrays"),
    ],
)
def test_npz_that_does_not_fit(tmp_path: Path, arrays, sentence: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=sentence):
        read(tmp_path / "a.npz")


GOOD = idx(np.zeros((2, 3, 3)))


@pytest.mark.parametrize(
    ("image_bytes", "label_bytes", "sentence"),
    [
        (GOOD[:-1], idx(np.zeros(2)), "ends in the middle"),
        (gzip.compress(GOOD, mtime=0)[:-9], idx(np.zeros(2)), "ends in the middle"),
        (GOOD[:6], idx(np.zeros(2)), "ends in the middle"),
        (GOOD + b"x", idx(np.zeros(2)), "holds more bytes than its header"),
        (GOOD, idx(np.zeros(3)), "has 2 images and 3 labels"),
        (b"\0\0\x0d\1" + b"\0" * 20, idx(np.zeros(2)), "is not an IDX file of bytes"),
        (GOOD, None, "has no train-labels-idx1-ubyte beside it"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, idx(np.zeros(2)), "ends in the middle"),
    ],
)
def test_idx_that_does_not_fit(tmp_path: Path, image_bytes: bytes, label_bytes: bytes | None, sentence: str) -> None:
    put(tmp_path / "train-images-idx3-ubyte", image_bytes)
    if label_bytes is not None:
        put(tmp_path / "train-labels-idx1-ubyte", label_bytes)
    with pytest.raises(DataError, match=sentence):
        read(tmp_path)


def test_pixels_of_a_file(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png")
    assert pixels(path).tolist() == RED.tolist()
    assert pixels(path, size=2).shape == (2, 2, 3)
    assert pixels(path, channels=1).shape == (4, 6, 1)
    assert image_shape(path) == (4, 6, 3)


def test_pixels_of_an_array() -> None:
    assert pixels(RED) is RED
    assert pixels(RED, size=3, channels=1).shape == (3, 3, 1)
    assert pixels(RED[:, :, :1], channels=3).tolist() == np.repeat(RED[:, :, :1], 3, axis=2).tolist()


def test_the_middle_square_is_taken(tmp_path: Path) -> None:
    stripes = np.zeros((2, 6, 3), np.uint8)
    stripes[:, 2:4] = 255
    assert pixels(stripes, size=2).tolist() == np.full((2, 2, 3), 255).tolist()


@pytest.mark.parametrize(
    ("mode", "channels"), [("L", 1), ("1", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3), ("P", 3), ("I;16", 1)]
)
def test_every_mode_has_one_or_three_channels(tmp_path: Path, mode: str, channels: int) -> None:
    Image.new(mode, (5, 3)).save(tmp_path / "a.png")
    assert pixels(tmp_path / "a.png").shape == (3, 5, channels)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", np.array([[0, 0x1200, 0x8000, 0xFFFF]], dtype=np.uint16))
    assert pixels(tmp_path / "a.png").ravel().tolist() == [0, 0x12, 0x80, 0xFF]


def test_a_photograph_stands_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side
    assert pixels(picture(tmp_path / "a.jpg", exif=exif)).shape == (6, 4, 3)


def test_an_image_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fake\.png: is not an image"):
        pixels(put(tmp_path / "fake.png", "no pixels here"))


def test_half_an_image_is_named(tmp_path: Path) -> None:
    whole = picture(tmp_path / "a.png", np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)).read_bytes()
    with pytest.raises(DataError, match=r"b\.png: is a damaged image"):
        pixels(put(tmp_path / "b.png", whole[: len(whole) // 2]))


@pytest.mark.parametrize("side", [8_500, 12_000, 20_000])
def test_a_decompression_bomb_is_not_opened(tmp_path: Path, side: int) -> None:
    Image.new("1", (side, side)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png: has .* pixels, over the limit of 64 million"):
        pixels(tmp_path / "a.png")


def test_without_pillow_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = picture(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pictures need Pillow: pip install 'clearhead\[vision\]'"):
        pixels(path)


def test_pictures_without_classes(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    with pytest.raises(DataError, match="put those of each class in a folder named after it"):
        read(tmp_path)
    with pytest.raises(DataError, match="put those of each class in a folder named after it"):
        read(tmp_path, kind="images")
    with pytest.raises(DataError, match=r"a\.png: is a single picture"):
        read(tmp_path / "a.png")


def test_mnist() -> None:
    dataset = read(real("mnist"))
    assert (dataset.kind, len(dataset.train) + len(dataset.validation)) == ("images", 60_000)
    assert dataset.train[0].image.shape == (28, 28, 1)
    assert {example.label for example in dataset.train} == set("0123456789")
