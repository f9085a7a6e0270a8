"""Folders of data files: which file is the training part, which the validation part."""

from __future__ import annotations

from pathlib import Path

from clearhead.data import names
from clearhead.data.files import files_in, folders_in
from clearhead.data.splits import Parts, own_parts
from clearhead.errors import DataError

_ENDINGS = names.TABLES | names.TAGGED | names.TEXTS


def data_files(folder: Path) -> list[Path]:
    """The files of a folder that may hold rows; notes about the data are not data."""
    return [
        entry
        for entry in files_in(folder)
        if names.suffix(entry) in _ENDINGS and Path(names.bare(entry)).stem not in names.NOT_DATA
    ]


def parts_of(path: Path) -> Parts[Path]:
    """The files of a dataset of rows: the path itself, or what a folder has as its parts."""
    if path.is_file():
        return Parts([path], None)
    found = data_files(path)
    parts = own_parts(found)
    if not files_in(path) and not folders_in(path):
        raise DataError("is an empty folder", path=path)
    if not found:
        raise DataError(f"holds nothing to learn from (.csv, .tsv, .jsonl, .txt, .conll){_instead(path)}", path=path)
    if len(parts.train) > 1 and names.part(parts.train[0]) != "train":
        some = ", ".join(file.name for file in found[:4]) + (", …" if len(found) > 4 else "")
        raise DataError(f"holds several data files ({some}); give one, or name them train.* and valid.*", path=path)
    return parts


def _instead(folder: Path) -> str:
    """The end of a sentence about a folder without data: an archive to unpack, or a folder one deeper."""
    for file in files_in(folder):
        if file.suffix in (".zip", ".tgz") or ".tar" in file.suffixes:
            return f"; unpack {file.name} first"
    inner = [entry.name for entry in folders_in(folder)]
    return f"; its folders are {', '.join(inner[:4])}{', …' if len(inner) > 4 else ''}" if inner else ""
