"""Captioned images: a table of image names and sentences beside a folder of images.

`captions.tsv` has `name.jpg<TAB>sentence`, or `name.jpg#0<TAB>sentence` where an image has several; `train.txt` and
`dev.txt` may list the images of each part, and an image in no list belongs to neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from clearhead.data import names
from clearhead.data.columns import Table, inspect
from clearhead.data.examples import Captioned
from clearhead.data.files import Reading, files_in, folders_in, lines
from clearhead.data.splits import Parts, own_parts
from clearhead.errors import DataError

Grouped = dict[str, list[tuple[int, str]]]  # image name -> (line, caption)

_NUMBER = re.compile(r"#\d+$")


def read(path: Path, reading: Reading) -> Parts[Captioned]:
    """All captioned images of a folder."""
    folder = path if path.is_dir() else path.parent
    table = inspect(captions_file(folder) if path.is_dir() else path, reading)
    grouped = _grouped(table, reading)
    lists = own_parts(_lists(folder, table.path))
    if not lists.train or names.part(lists.train[0]) != "train":
        return Parts(_captioned(grouped, grouped, folder, table.path), None)
    train = _listed(lists.train, grouped, reading.encoding)
    held_out = None if lists.validation is None else _listed(lists.validation, grouped, reading.encoding)
    return Parts(
        _captioned(grouped, train, folder, table.path),
        None if held_out is None else _captioned(grouped, held_out, folder, table.path),
    )


def captions_file(folder: Path) -> Path:
    """The table of captions in a folder."""
    for entry in files_in(folder):
        if is_captions_file(entry):
            return entry
    raise DataError("holds no captions.tsv beside its images", path=folder)


def is_captions_file(path: Path) -> bool:
    """Whether a name is one of a table of captions: `captions.tsv.gz`, `captions.txt`."""
    return Path(names.bare(path)).stem == "captions"


def names_images(table: Table) -> bool:
    """Whether a column of a table holds the names of image files, give or take a slip."""
    values = table.values(_image_column(table, Reading())) if table.width > 1 else []
    return bool(values) and sum(map(_looks_like_image, values)) > 0.9 * len(values)


def _looks_like_image(name: str) -> bool:
    return Path(_NUMBER.sub("", name.strip())).suffix.lower() in names.PICTURES


def _image_column(table: Table, reading: Reading) -> int:
    return table.column(reading.source) if reading.source else table.named(names.IMAGE) or 0


def _grouped(table: Table, reading: Reading) -> Grouped:
    """The captions of each image, in the order of the file."""
    if table.width < 2:
        raise DataError("has one column where an image and a caption are expected", path=table.path)
    image = _image_column(table, reading)
    by_name = table.named(names.CAPTION | names.TEXT)
    other = by_name if by_name not in (None, image) else next(place for place in range(table.width) if place != image)
    caption = table.column(reading.target) if reading.target else other
    grouped: Grouped = {}
    for line, (name, text) in table.texts(image, caption):
        grouped.setdefault(_NUMBER.sub("", name.strip()), []).append((line, text))
    return grouped


def _lists(folder: Path, table: Path) -> list[Path]:
    """The files beside the table that list image names."""
    return [entry for entry in files_in(folder) if names.suffix(entry) == ".txt" and entry != table]


def _listed(files: Sequence[Path], grouped: Grouped, encoding: str) -> list[str]:
    """The image names in the lists of one part; each must have a caption."""
    listed = [line.strip() for file in files for _, line in lines(file, encoding) if line.strip()]
    missing = [name for name in listed if name not in grouped]
    if missing:
        raise DataError(f"lists {len(missing):,} images without a caption, the first {missing[0]}", path=files[0])
    return listed


def _captioned(grouped: Grouped, wanted: Iterable[str], folder: Path, table: Path) -> list[Captioned]:
    """One example for each image; an image that is not there is an error."""
    images = next((entry for entry in folders_in(folder) if entry.name.lower() == "images"), folder)
    found = {name: images / name for name in wanted}
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
