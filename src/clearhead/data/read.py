"""From a path to a dataset: find out its kind, read it, and hold a part out where it has none of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from clearhead.config import DataKind
from clearhead.data import captions, images, labelled, pairs, plain, tagged
from clearhead.data.examples import AnyDataset, Dataset
from clearhead.data.files import Reading, existing
from clearhead.data.kinds import Found, detect
from clearhead.data.splits import Parts, identity, split
from clearhead.errors import ConfigError, DataError, nearest

BUILTIN = "builtin"  # the path that names the data of the package itself

_READERS: dict[DataKind, Callable[[str | Path, Reading], Parts[Any]]] = {
    "pairs": pairs.read,
    "labelled": lambda path, reading: labelled.read(existing(path), reading),
    "tagged": lambda path, reading: tagged.read(existing(path), reading),
    "images": lambda path, _: images.read(existing(path)),
    "captions": lambda path, reading: captions.read(existing(path), reading),
}


def read(
    path: str | Path,
    *,
    kind: str | None = None,
    source: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    validation: float = 0.05,
) -> AnyDataset:
    """Read a file, a folder, two aligned files `a,b`, or `builtin`; `validation` is the share to hold out."""
    reading = Reading(encoding, source, target)
    found = kind_of(path, kind, reading).kind
    if found == "text":
        return Dataset(found, *_text(path, reading, validation), origin=str(path))
    parts = read_parts(path, found, reading)
    if parts.validation is not None:
        return Dataset(found, parts.train, parts.validation, origin=str(path))
    return Dataset(found, *split(parts.train, validation, identity), origin=str(path))


def read_parts(path: str | Path, kind: DataKind, reading: Reading) -> Parts[Any]:
    """The examples of a path, of any kind but plain text, with the validation part that it has of its own."""
    if str(path) == BUILTIN:
        return Parts(_builtin(kind), None)
    parts = _READERS[kind](path, reading)
    if not parts.train:
        raise DataError("is empty", path=path)
    return parts


def kind_of(path: str | Path, kind: str | None, reading: Reading) -> Found:
    """The kind that the user says, else the one that the path seems to hold."""
    for known in get_args(DataKind):
        if kind == known:
            return Found(known, "as you say")
    if kind is not None:
        raise ConfigError(f"unknown kind {kind}; {nearest(kind, get_args(DataKind))}")
    if str(path) == BUILTIN:
        kinds = ", ".join(get_args(DataKind))
        raise ConfigError(f"{BUILTIN} has data of every kind; choose with --kind (data.kind=…) from: {kinds}")
    return detect(path, reading)


def _text(path: str | Path, reading: Reading, share: float) -> tuple[plain.Text, plain.Text]:
    if str(path) == BUILTIN:
        return plain.split_text(plain.TextInMemory(_builtin("text")), share)
    return plain.read(existing(path), reading, share)


def _builtin(kind: DataKind) -> Sequence[Any]:
    from clearhead.data import builtin

    return builtin.examples(kind)
