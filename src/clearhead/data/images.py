"""Images with a class: a folder for each class, MNIST's idx files, or arrays in an npz file.

Pictures in files stay closed until `pixels` is asked for them, so a dataset of any size can be listed.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data import names
from clearhead.data.examples import Picture, Pixels
from clearhead.data.files import BLOCK, files_in, folders_in, opened
from clearhead.data.splits import Parts, own_parts
from clearhead.errors import DataError, nearest


def read(path: Path) -> Parts[Picture]:
    """All pictures of a file or a folder."""
    files = [path] if path.is_file() else array_files(path)
    if files:
        parts = own_parts(files)
        held_out = None if parts.validation is None else _from_arrays(parts.validation)
        return Parts(_from_arrays(parts.train), held_out)
    folders = class_folders(path)
    held_out = None if folders.validation is None else _from_folders(folders.validation)
    train = _from_folders(folders.train)
    if not train:
        raise no_classes(path)
    return Parts(train, held_out)


def no_classes(folder: Path) -> DataError:
    """The error of a folder whose pictures, if any, are not sorted by class."""
    return DataError("has no pictures in folders; put those of each class in a folder named after it", path=folder)


def array_files(folder: Path) -> list[Path]:
    """The npz files and the idx files with images (not their labels) of a folder."""
    return [entry for entry in files_in(folder) if is_array_file(entry) and "labels" not in names.bare(entry)]


def is_array_file(path: Path) -> bool:
    """Whether a name is one of images as arrays: `digits.npz`, `train-images-idx3-ubyte.gz`."""
    name = names.bare(path)
    return name.endswith((".npz", "idx3-ubyte", "idx1-ubyte"))


def class_folders(path: Path) -> Parts[Path]:
    """The folders that hold the pictures of one class each, under `train/` and `val/` where there are such."""
    folders = folders_in(path)
    inside = {folder: folders_in(folder) for folder in folders}
    parts = own_parts(folder for folder in folders if inside[folder])  # a class may be called train, too
    if not parts.train or names.part(parts.train[0]) != "train":
        return Parts(folders, None)
    held_out = None if parts.validation is None else [inner for part in parts.validation for inner in inside[part]]
    return Parts([inner for part in parts.train for inner in inside[part]], held_out)


def pictures_in(folder: Path) -> Iterator[Path]:
    """The pictures of a folder, by their names."""
    return (entry for entry in files_in(folder) if entry.suffix.lower() in names.PICTURES)


def _from_folders(folders: Sequence[Path]) -> list[Picture]:
    return [Picture(file, folder.name) for folder in folders for file in pictures_in(folder)]


def _from_arrays(files: Sequence[Path]) -> list[Picture]:
    return [picture for file in files for picture in (_npz(file) if names.suffix(file) == ".npz" else _idx(file))]


def _idx(path: Path) -> list[Picture]:
    """Images and labels from the two idx files that belong together; `path` is either."""
    images, labels = (_idx_array(file) for file in (_partner(path, "images"), _partner(path, "labels")))
    if images.ndim != 3 or labels.ndim != 1:
        raise DataError(
            f"has {images.ndim} dimensions, and its labels have {labels.ndim}; 3 and 1 are expected", path=path
        )
    return _pictures(images, [str(label) for label in labels], path)


def _partner(path: Path, side: str) -> Path:
    """The images or the labels file of the pair that `path` is one of."""
    wanted = names.bare(path)
    for images, labels in (("images", "labels"), ("idx3", "idx1")):
        wanted = wanted.replace(labels, images) if side == "images" else wanted.replace(images, labels)
    for entry in files_in(path.parent):
        if names.bare(entry) == wanted:
            return entry
    raise DataError(f"has no {wanted} beside it; idx images and labels come as two files", path=path)


def _idx_array(path: Path) -> Pixels:
    """The array of an idx file: two zeros, a type, the number of sizes, the sizes, then the bytes."""
    with opened(path) as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:3] != b"\0\0\x08":
            raise DataError("is not an idx file of bytes", path=path)
        sizes = stream.read(4 * start[3])
        if len(sizes) < 4 * start[3]:
            raise EOFError
        shape = struct.unpack(f">{start[3]}I", sizes)
        content = bytearray()
        while piece := stream.read(BLOCK):
            content += piece
            if len(content) > math.prod(shape):
                raise DataError(f"holds more bytes than its sizes {shape} say", path=path)
        if len(content) < math.prod(shape):
            raise EOFError
    return np.frombuffer(content, np.uint8).reshape(shape)


def _npz(path: Path) -> list[Picture]:
    """Arrays `images` (N, H, W) or (N, H, W, C), `labels` (N,), and perhaps the `names` of the labels."""
    try:
        with opened(path) as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("images", "labels", "names") if name in file}
            known = list(file)
    except DataError:
        raise
    except (zipfile.BadZipFile, ValueError, MemoryError, TypeError):
        raise DataError("is not an npz file of plain arrays, or is damaged", path=path) from None
    for name in ("images", "labels"):
        if name not in arrays:
            raise DataError(f"has no array {name}; {nearest(name, known)}", path=path)
    images = arrays["images"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        found = f"{images.dtype} {images.shape}"
        raise DataError(f"has images of {found}; uint8 (N, H, W) or (N, H, W, C) is expected", path=path)
    return _pictures(images, _labels(arrays["labels"], arrays.get("names"), path), path)


def _labels(labels: NDArray[Any], called: NDArray[Any] | None, path: Path) -> list[str]:
    """Labels as text: by their names where there are some."""
    values = labels.ravel().tolist()
    if called is None:
        return [value.decode() if isinstance(value, bytes) else str(value) for value in values]
    if not all(value in range(len(called)) for value in values):
        raise DataError(f"has a label that is none of its {len(called)} names", path=path)
    return [str(called[value]) for value in values]


def _pictures(images: Pixels, labels: Sequence[str], path: Path) -> list[Picture]:
    if len(images) != len(labels):
        raise DataError(f"has {len(images):,} images and {len(labels):,} labels", path=path)
    images = images.reshape(*images.shape[:3], -1)  # (N, H, W, C)
    return [Picture(image, label, number) for number, (image, label) in enumerate(zip(images, labels, strict=True), 1)]
