"""Images with a class: a folder for each class, MNIST's IDX files, or arrays in an npz file.

Image files stay closed until their pixels are needed, so a dataset of any size can be listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from clearhead.data.examples import Parts, Picture, Pixels
from clearhead.data.files import PICTURES, TABLES, bare_name, files_in, folders_in, part_name, sort_into_parts, suffix
from clearhead.data.images import image_digest, read_idx, read_npz
from clearhead.data.readers import READERS, Certainty, Detected, Reader
from clearhead.data.source import Source
from clearhead.errors import DataError

_UNREADABLE = frozenset({".heic", ".heif", ".avif", ".svg", ".raw", ".cr2", ".nef", ".dng", ".psd"})


@READERS.register("images")
class ImageReader(Reader):
    """Reads images with one class each."""

    example_kind, title, unit, task = "images", "images with classes", "images", "vision"

    def can_read(self, source: Source) -> Detected | None:
        if source.is_file:
            return Detected("pictures as arrays", Certainty.CERTAIN) if is_array_file(source.path) else None
        if not source.is_folder:
            return None
        if arrays := array_files(source.path):
            return Detected(f"pictures as arrays, {arrays[0].name}", Certainty.NAMED)
        classes = class_folders(source.path).train
        tables = [entry.name for entry in files_in(source.path) if suffix(entry) in TABLES]
        if len(classes) == 1 and tables and next(_pictures_in(classes[0]), None):
            message = f"has all pictures in one folder, and a table {tables[0]} whose labels are not read"
            raise DataError(f"{message}; put the pictures of each class in a folder named after it", path=source.path)
        if any(next(_pictures_in(folder), None) for folder in classes):
            return Detected(f"pictures in one folder for each of {len(classes)} classes", Certainty.NAMED)
        if not classes and next(_pictures_in(source.path), None):
            raise _without_classes(source.path)
        if found := _unreadable(source.path):
            raise DataError(
                f"has pictures only as {' and '.join(found)}; convert them to JPEG or PNG", path=source.path
            )
        return None

    def read(self, source: Source) -> Parts[list[Picture]]:
        files = [source.path] if source.is_file else array_files(source.path)
        if files:
            arrays = sort_into_parts(files)
            held_out = None if arrays.validation is None else _from_arrays(arrays.validation)
            return Parts(_from_arrays(arrays.train), held_out)
        folders = class_folders(source.path)
        train = _from_folders(folders.train)
        if not train:
            raise _without_classes(source.path)
        return Parts(train, None if folders.validation is None else _from_folders(folders.validation))

    def columns(self, source: Source) -> str:
        found = _unreadable(source.path) if source.is_folder else None
        if not found:
            return ""
        listed = " and ".join(f"{count:,} {name}" for name, count in found.items())
        return f"{listed} files are not read; convert them to JPEG or PNG"

    def identity(self, example: Picture) -> bytes:
        return image_digest(example.image)

    def row(self, key: bytes, example: Picture) -> tuple[bytes, str]:
        return key, example.label

    def answer(self, example: Picture) -> str:
        return example.label

    def classes(self, example: Picture) -> tuple[str, ...]:
        return (example.label,)

    def image(self, example: Picture) -> Pixels | Path:
        return example.image


def array_files(folder: Path) -> list[Path]:
    """The npz files and the IDX files with images (not their labels) of a folder."""
    return [entry for entry in files_in(folder) if is_array_file(entry) and "labels" not in bare_name(entry)]


def is_array_file(path: Path) -> bool:
    """Whether a file holds images as arrays, by its name: `digits.npz`, `train-images-idx3-ubyte.gz`."""
    return bare_name(path).endswith((".npz", "idx3-ubyte", "idx1-ubyte"))


def class_folders(path: Path) -> Parts[list[Path]]:
    """The folders with the pictures of one class each, under `train/` and `val/` if these exist.

    A folder around all of these, as an archive may have one, is passed over.
    """
    folders = folders_in(path)
    if len(folders) == 1 and not files_in(path) and folders_in(folders[0]) and part_name(folders[0]) != "train":
        return class_folders(folders[0])
    inside = {folder: folders_in(folder) for folder in folders}
    parts = sort_into_parts(folder for folder in folders if inside[folder])  # a class may be called train, too
    if not parts.train or part_name(parts.train[0]) != "train":
        return Parts(folders, None)
    held_out = None if parts.validation is None else [inner for part in parts.validation for inner in inside[part]]
    return Parts([inner for part in parts.train for inner in inside[part]], held_out)


def _pictures_in(folder: Path) -> Iterator[Path]:
    """The pictures of a folder; where it has none itself, those of the folders in it."""
    here = [entry for entry in files_in(folder) if entry.suffix.lower() in PICTURES]
    yield from here
    for inner in () if here else folders_in(folder):
        yield from (entry for entry in files_in(inner) if entry.suffix.lower() in PICTURES)


def _unreadable(folder: Path) -> Counter[str]:
    """How many files there are of each kind of picture that cannot be read, in the folder and below `train/`."""
    inner = folders_in(folder)
    places = [folder, *inner, *(each for part in inner if part_name(part) for each in folders_in(part))]
    suffixes = (entry.suffix.lower() for place in places for entry in files_in(place))
    return Counter(ending for ending in suffixes if ending in _UNREADABLE)


def _from_folders(folders: Sequence[Path]) -> list[Picture]:
    return [Picture(file, folder.name) for folder in folders for file in _pictures_in(folder)]


def _from_arrays(files: Sequence[Path]) -> list[Picture]:
    pictures = []
    for file in files:
        images, labels = read_npz(file) if suffix(file) == ".npz" else read_idx(file)
        rows = zip(images, labels, strict=True)
        pictures += [Picture(image, label, number) for number, (image, label) in enumerate(rows, 1)]
    return pictures


def _without_classes(folder: Path) -> DataError:
    return DataError("has no pictures in folders; put those of each class in a folder named after it", path=folder)
