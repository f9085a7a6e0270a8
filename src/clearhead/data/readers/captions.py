"""Captioned images: a table of image names and sentences beside a folder of images.

`captions.tsv` has `name.jpg<TAB>sentence`, or `name.jpg#0<TAB>sentence` where an image has several; `train.txt` and
`dev.txt` may list the images of each part, and an image in no list belongs to neither. A JSON file may have both, as
Karpathy's splits have them (images with sentences) or as COCO has them (images and annotations).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import TokenizerConfig
from clearhead.data import lint
from clearhead.data.examples import Captioned, Parts, Pixels
from clearhead.data.files import (
    PICTURES,
    TABLES,
    Preview,
    bare_name,
    files_in,
    folders_in,
    is_documentation,
    lines,
    part_name,
    sort_into_parts,
    suffix,
)
from clearhead.data.images import image_digest
from clearhead.data.readers import READERS, Certainty, Detected, Reader
from clearhead.data.source import ReadOptions, Source
from clearhead.data.tables import CAPTION, IMAGE, TEXT, Table, are_classes, read_json
from clearhead.errors import DataError

Grouped = dict[str, list[tuple[int, str]]]  # image name -> (line, caption)

_NUMBER = re.compile(r"#\d+$")


@READERS.register("captions")
class CaptionReader(Reader):
    """Reads images with captions."""

    example_kind, title, unit, task = "captions", "images with captions", "images", "caption"
    tokenizer = TokenizerConfig(kind="word")

    def can_read(self, source: Source) -> Detected | None:
        if source.is_folder:
            found = _caption_files(source)
            return Detected(f"a table of captions, {found[0].name}", Certainty.NAMED) if found else None
        if source.is_file and _document_of(source.path, source.options.encoding):
            return Detected("images with their captions", Certainty.CERTAIN)
        if source.is_file and source.is_table() and names_images(source.table()):
            return Detected("a column of image names beside one of sentences", Certainty.NAMED)
        return None

    def read(self, source: Source) -> Parts[list[Captioned]]:
        folder = source.path if source.is_folder else source.path.parent
        file = _captions_file(source) if source.is_folder else source.path
        if document := _document_of(file, source.options.encoding):
            return _from_document(document, folder, file)
        table = source.table(file)
        grouped = _group(table, source.options)
        lists = [entry for entry in files_in(folder) if suffix(entry) == ".txt" and entry != table.path]
        parts = sort_into_parts(lists)
        if not parts.train or part_name(parts.train[0]) != "train":
            return Parts(_captioned(grouped, grouped, folder, table.path), None)
        encoding = source.options.encoding
        train = _listed(parts.train, grouped, encoding)
        held_out = None if parts.validation is None else _listed(parts.validation, grouped, encoding)
        return Parts(
            _captioned(grouped, train, folder, table.path),
            None if held_out is None else _captioned(grouped, held_out, folder, table.path),
        )

    def identity(self, example: Captioned) -> bytes:
        return image_digest(example.image)

    def texts(self, example: Captioned) -> Mapping[str, Sequence[str]]:
        return {"caption": example.captions}

    def image(self, example: Captioned) -> Pixels | Path:
        return example.image

    def problems(self, example: Captioned) -> Iterator[str]:
        return lint.texts_problems(*example.captions)


def names_images(table: Table) -> bool:
    """Whether more than nine in ten values of a column are names of image files."""
    values = table.values(_image_column(table, ReadOptions())) if table.width > 1 else []
    return bool(values) and sum(map(_looks_like_image, values)) > 0.9 * len(values)


def _has_captions(table: Table) -> bool:
    """Whether a table names images, and has sentences beside them and not their classes."""
    return names_images(table) and not are_classes(table.values(_columns(table, ReadOptions())[1]))


def _caption_files(source: Source) -> list[Path]:
    """The captions of a folder: by their name (`captions.tsv.gz`, `captions.txt`), else by what they hold."""
    files = files_in(source.path)
    if named := [entry for entry in files if Path(bare_name(entry)).stem == "captions"]:
        return named
    encoding = source.options.encoding
    if found := [entry for entry in files if _document_of(entry, encoding)]:
        return found
    if not _has_pictures(source.path):
        return []
    tables = [entry for entry in files if suffix(entry) in TABLES and not is_documentation(entry)]
    return [entry for entry in tables if _has_captions(source.table(entry))]


def _captions_file(source: Source) -> Path:
    if found := _caption_files(source):
        return found[0]
    raise DataError("holds no captions.tsv beside its images", path=source.path)


def _has_pictures(folder: Path) -> bool:
    """Whether a folder, or one in it, has pictures."""
    places = (folder, *folders_in(folder))
    return any(entry.suffix.lower() in PICTURES for place in places for entry in files_in(place))


def _document_of(file: Path, encoding: str) -> dict[str, Any] | None:
    """A JSON file with a list of images and their captions; None if a file is not one."""
    if suffix(file) != ".json" or not file.is_file():
        return None
    value = read_json(file, encoding) if _begins_with_object(file, encoding) else None
    images = value.get("images") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(images, list) or not images:
        return None
    is_karpathy = isinstance(images[0], dict) and "sentences" in images[0]
    return value if is_karpathy or isinstance(value.get("annotations"), list) else None


def _begins_with_object(file: Path, encoding: str) -> bool:
    """Whether the first line begins an object and does not end it: a document of these kinds has no second object."""
    first = next((line for _, line in Preview(file, encoding).head(1)), "").strip()
    return first.startswith("{") and (first == "{" or '"images"' in first)


def _from_document(value: dict[str, Any], folder: Path, file: Path) -> Parts[list[Captioned]]:
    """The examples of Karpathy's or COCO's form; `split` sorts the images into parts where they have one."""
    grouped: Grouped = {}
    parts: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    by_id: dict[Any, str] = {}
    try:
        for number, image in enumerate(value["images"], start=1):
            name = str(Path(image.get("filepath", "")) / (image.get("filename") or image["file_name"]))
            by_id[image.get("id", number)] = name
            grouped[name] = [(number, _sentence(each)) for each in image.get("sentences", ())]
            part = "train" if image.get("split") == "restval" else part_name(Path(image.get("split", "train")))
            parts[part or "train"].append(name)
        for number, each in enumerate(value.get("annotations", ()), start=1):
            grouped[by_id[each["image_id"]]].append((number, each["caption"]))
    except (KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"has an image or a caption without {problem}", path=file) from None
    train, held_out = (
        [name for name in names if grouped[name]] for names in (parts["train"], parts["validation"] or parts["test"])
    )
    if not train:
        raise DataError("has no image with a caption to train on", path=file)
    return Parts(_captioned(grouped, train, folder, file), _captioned(grouped, held_out, folder, file) or None)


def _sentence(given: Any) -> str:
    return given if isinstance(given, str) else given.get("raw") or " ".join(given["tokens"])


def _looks_like_image(name: str) -> bool:
    return Path(_NUMBER.sub("", name.strip())).suffix.lower() in PICTURES


def _image_column(table: Table, options: ReadOptions) -> int:
    return table.column(options.source) if options.source else table.find(IMAGE) or 0


def _columns(table: Table, options: ReadOptions) -> tuple[int, int]:
    """The columns of the image and of its caption: as the user chose, by name, else the first two."""
    image = _image_column(table, options)
    by_name = table.find(CAPTION | TEXT)
    other = by_name if by_name not in (None, image) else next(index for index in range(table.width) if index != image)
    assert other is not None
    return image, table.column(options.target) if options.target else other


def _group(table: Table, options: ReadOptions) -> Grouped:
    """The captions of each image, in the order of the file."""
    if table.width < 2:
        raise DataError("has one column where an image and a caption are expected", path=table.path)
    image, caption = _columns(table, options)
    grouped: Grouped = {}
    for line, (name, text) in table.rows(image, caption):
        grouped.setdefault(_NUMBER.sub("", name.strip()), []).append((line, text))
    return grouped


def _listed(files: Sequence[Path], grouped: Grouped, encoding: str) -> list[str]:
    """The image names in the lists of one part; each must have a caption."""
    listed = [line.strip() for file in files for _, line in lines(file, encoding) if line.strip()]
    missing = [name for name in listed if name not in grouped]
    if missing:
        raise DataError(f"lists {len(missing):,} images without a caption, the first {missing[0]}", path=files[0])
    return listed


def _image_folder(folder: Path, names: Sequence[str]) -> Path:
    """Where the images are: in `images`, beside the table, or in another folder there that has the first of them."""
    inner = folders_in(folder)
    usual = next((entry for entry in inner if entry.name.lower() == "images"), folder)
    return next((place for place in (usual, folder, *inner) if names and (place / names[0]).is_file()), usual)


def _captioned(grouped: Grouped, names: Iterable[str], folder: Path, table: Path) -> list[Captioned]:
    """One example for each image; every image file must exist."""
    names = list(names)
    images = _image_folder(folder, names)
    found = {name: images / name for name in names}
    missing = [name for name, path in found.items() if not path.is_file()]
    if missing:
        count = f"{len(missing):,} image{'s' * (len(missing) > 1)}"
        message = (
            f"has captions of {count} not in {images}, the first {missing[0]}; add them or list the others in train.txt"
        )
        raise DataError(message, path=table, line=grouped[missing[0]][0][0])
    return [
        Captioned(path, tuple(caption for _, caption in grouped[name]), grouped[name][0][0])
        for name, path in found.items()
    ]
