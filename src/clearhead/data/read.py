"""From a path to a dataset: locate it, find out its kind, read it, and hold a part out where it has none of its own.

The steps of `read` can be taken one by one, so that a path is located once and looked into before it is read:

    places = located("wikitext2+sst2", Reading())
    found = [kind_of(place).kind for place in places]       # text, labelled
    dataset = read_places(places, found, "text", share=0.05)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from clearhead.config import DataKind
from clearhead.data import captions, images, labelled, pairs, plain, tagged
from clearhead.data.examples import AnyDataset, Dataset
from clearhead.data.files import Reading, existing
from clearhead.data.kinds import Found, detect
from clearhead.data.places import BUILTIN, Place, called, located, only
from clearhead.data.splits import Parts, identity, split
from clearhead.errors import ConfigError, DataError, nearest

_KINDS: tuple[DataKind, ...] = get_args(DataKind)
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
    """Read a file, a folder, a known dataset by its name, two aligned files `a,b`, texts `a+b`, or `builtin`.

    `validation` is the share to hold out where the data has no validation part of its own.
    """
    said = known_kind(kind)
    places = located(path, Reading(encoding, source, target))
    found = [kind_of(place, said).kind for place in places]
    return read_places(places, found, said or kind_together(found), validation)


def read_places(places: Sequence[Place], found: Sequence[DataKind], kind: DataKind, share: float) -> AnyDataset:
    """Read data of one kind from places that seem to hold the kinds `found`; only text can be in several."""
    if kind == "text":
        return Dataset(kind, *_text(places, found, share), origin=called(places))
    place = only(places)
    parts = read_parts(place, kind)
    if parts.validation is not None:
        return Dataset(kind, parts.train, parts.validation, origin=place.name)
    return Dataset(kind, *split(parts.train, share, identity), origin=place.name)


def read_parts(place: Place, kind: DataKind) -> Parts[Any]:
    """The examples of a place, of any kind but plain text, with the validation part that it has of its own."""
    if place.path == BUILTIN:
        return Parts(_builtin(kind), None)
    parts = _READERS[kind](place.path, place.reading)
    if not parts.train:
        raise DataError("is empty", path=place.name)
    return parts


def known_kind(kind: str | None) -> DataKind | None:
    """The kind that the user says, which must be one."""
    for known in _KINDS:
        if kind == known:
            return known
    if kind is not None:
        raise ConfigError(f"unknown kind {kind}; {nearest(kind, _KINDS)}")
    return None


def kind_of(place: Place, said: DataKind | None = None) -> Found:
    """The kind that the user says, else the one that the place seems to hold."""
    if said is not None:
        return Found(said, "as you say")
    if place.path == BUILTIN:
        kinds = ", ".join(_KINDS)
        raise ConfigError(f"{BUILTIN} has data of every kind; choose with --kind (data.kind=…) from: {kinds}")
    return detect(place.path, place.reading)


def kind_together(found: Sequence[DataKind]) -> DataKind:
    """What places of these kinds are when joined: several can only be text."""
    return found[0] if len(found) == 1 else "text"


def _text(places: Sequence[Place], found: Sequence[DataKind], share: float) -> tuple[plain.Text, plain.Text]:
    """The training texts of all places one after the other, and the validation texts likewise."""
    texts = [_text_of(place, kind, share) for place, kind in zip(places, found, strict=True)]
    train, held_out = zip(*texts, strict=True)
    return texts[0] if len(texts) == 1 else (plain.JoinedText(train), plain.JoinedText(held_out))


def _text_of(place: Place, found: DataKind, share: float) -> tuple[plain.Text, plain.Text]:
    """The texts of labelled examples; anything else as it is."""
    if found == "labelled":
        return plain.of_examples(read_parts(place, found), share)
    if place.path == BUILTIN:
        return plain.split_text(plain.TextInMemory(_builtin("text")), share)
    return plain.read(existing(place.path), place.reading, share)


def _builtin(kind: DataKind) -> Sequence[Any]:
    from clearhead.data import builtin

    return builtin.examples(kind)
