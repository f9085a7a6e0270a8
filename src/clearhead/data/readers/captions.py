"""Captioned images: a table of image names and sentences beside a folder of images.

`captions.tsv` has `name.jpg<TAB>sentence`, or `name.jpg#0<TAB>sentence` where an image has several; `train.txt` and
`dev.txt` may list the images of each part, and an image in no list belongs to neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from clearhead.config import TokenizerConfig
from clearhead.data import lint
from clearhead.data.examples import Captioned, Parts, Pixels
from clearhead.data.files import PICTURES, bare_name, files_in, folders_in, lines, part_name, sort_into_parts, suffix
from clearhead.data.images import image_digest
from clearhead.data.readers import READERS, Certainty, Detected, Reader
from clearhead.data.source import ReadOptions, Source
from clearhead.data.tables import CAPTION, IMAGE, TEXT, Table
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
            tables = _caption_files(source.path)
            return Detected(f"a table of captions, {tables[0].name}", Certainty.NAMED) if tables else None
        if source.is_file and source.is_table() and names_images(source.table()):
            return Detected("a column of image names beside one of sentences", Certainty.NAMED)
        return None

    def read(self, source: Source) -> Parts[list[Captioned]]:
        folder = source.path if source.is_folder else source.path.parent
        table = source.table(_captions_file(folder) if source.is_folder else source.path)
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


def _caption_files(folder: Path) -> list[Path]:
    """The tables of captions by their names: `captions.tsv.gz`, `captions.txt`."""
    return [entry for entry in files_in(folder) if Path(bare_name(entry)).stem == "captions"]


def _captions_file(folder: Path) -> Path:
    if found := _caption_files(folder):
        return found[0]
    raise DataError("holds no captions.tsv beside its images", path=folder)


def _looks_like_image(name: str) -> bool:
    return Path(_NUMBER.sub("", name.strip())).suffix.lower() in PICTURES


def _image_column(table: Table, options: ReadOptions) -> int:
    return table.column(options.source) if options.source else table.find(IMAGE) or 0


def _group(table: Table, options: ReadOptions) -> Grouped:
    """The captions of each image, in the order of the file."""
    if table.width < 2:
        raise DataError("has one column where an image and a caption are expected", path=table.path)
    image = _image_column(table, options)
    by_name = table.find(CAPTION | TEXT)
    other = by_name if by_name not in (None, image) else next(index for index in range(table.width) if index != image)
    caption = table.column(options.target) if options.target else other
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


def _captioned(grouped: Grouped, names: Iterable[str], folder: Path, table: Path) -> list[Captioned]:
    """One example for each image; every image file must exist."""
    images = next((entry for entry in folders_in(folder) if entry.name.lower() == "images"), folder)
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
