"""What is in a dataset, and what is wrong with it, before anything is trained: `check(path)` gives a `Report`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config import DataKind
from clearhead.data import faults, measures, pairs, pictures
from clearhead.data.examples import Pixels
from clearhead.data.faults import Fault
from clearhead.data.files import BLOCK, Reading, blocks
from clearhead.data.kinds import Found
from clearhead.data.measures import Lengths, Unknown
from clearhead.data.places import BUILTIN, Place, called, located, only
from clearhead.data.plain import JoinedText, RunningText, TextPart
from clearhead.data.read import kind_of, kind_together, known_kind, read_parts, read_places
from clearhead.data.splits import Parts, identity, split
from clearhead.data.views import VIEWS, View
from clearhead.errors import TextError

_BLOCKS = 32  # of a plain text that are looked into
_DECODED = 200  # pictures that are opened to the end; of the others only the beginning is read


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that `check` found out; None where the question does not arise."""

    path: str
    kind: DataKind
    reason: str  # what in the data says that it is of this kind
    unit: str  # what is counted
    train: int
    validation: int
    own_validation: bool  # the data brought it; else a share was held out
    command: str  # that trains on this data
    languages: tuple[str, str] | None = None
    lengths: tuple[Lengths, ...] = ()
    duplicates: int | None = None  # rows that are there already
    contradictions: int | None = None  # sources with several different answers
    leaked: int | None = None  # validation sources that are also in the training part
    unknown: Unknown | None = None
    classes: Mapping[str, int] = field(default_factory=dict)  # labels or tags of the training part
    sizes: Mapping[str, int] = field(default_factory=dict)  # of images: height × width × channels
    looked_into: float = 1.0  # share of a long text from which lengths and faults are
    faults: tuple[Fault, ...] = ()


class Keyed(NamedTuple):
    """An example, with what tells whether another has the same source."""

    key: bytes
    example: Any


def check(
    path: str | Path,
    *,
    kind: str | None = None,
    source: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    validation: float = 0.05,
) -> Report:
    """Read a path as training would, and report what is there."""
    said, reading = known_kind(kind), Reading(encoding, source, target)
    places = located(path, reading)
    found = [kind_of(place, said) for place in places]
    together = said or kind_together([each.kind for each in found])
    command = _command(called(places), together, kind, reading)
    if together == "text":
        return _report_on_text(places, found, validation, command)
    return _report_on_examples(only(places), found[0], validation, command)


def _command(path: str, found: DataKind, kind: str | None, reading: Reading) -> str:
    """The shortest command that trains on this data, read in this way."""
    task = "lm" if found == "text" else VIEWS[found].task
    encoding = None if reading.encoding == Reading().encoding else reading.encoding
    forced = None if path == BUILTIN else kind  # the task says which of ours is meant
    said = {"kind": forced, "source": reading.source, "target": reading.target, "encoding": encoding}
    words = ["clearhead", "train", task, "--data", path]
    return shlex.join(words + [f"data.{key}={value}" for key, value in said.items() if value])


def _report_on_examples(place: Place, found: Found, share: float, command: str) -> Report:
    view = VIEWS[found.kind]
    parts = read_parts(place, found.kind)
    own = parts.validation is not None
    train, held_out = _keyed(parts, share)
    both = train + held_out
    sizes = _sizes([example.image for _, example in both]) if view.unit == "images" else Counter()
    unknown, no_vocabulary = _unknown(view, train, held_out)
    return Report(
        path=place.name,
        kind=found.kind,
        reason=found.reason,
        unit=view.unit,
        train=len(train),
        validation=len(held_out),
        own_validation=own,
        command=command,
        languages=_languages(place) if found.kind == "pairs" else None,
        lengths=tuple(_lengths(view, both)),
        duplicates=measures.duplicates([view.row(*keyed) for keyed in both]),
        contradictions=_contradictions(view, both),
        leaked=measures.leaked((key for key, _ in train), (key for key, _ in held_out)) if own else None,
        unknown=unknown,
        classes=dict(_classes(view, train).most_common()),
        sizes=dict(sizes.most_common()),
        faults=(
            *no_vocabulary,
            *_of_rows(view, train, held_out, own),
            *_of_classes(view, train, held_out),
            *_of_sizes(sizes),
        ),
    )


def _languages(place: Place) -> tuple[str, str] | None:
    return None if place.path == BUILTIN else pairs.languages_of(place.path, place.reading)


def _keyed(parts: Parts[Any], share: float) -> tuple[list[Keyed], list[Keyed]]:
    """Both parts with their keys, which are worked out once: those of images cost reading the files."""
    train = [Keyed(identity(example), example) for example in parts.train]
    if parts.validation is None:
        return split(train, share, lambda keyed: keyed.key)
    return train, [Keyed(identity(example), example) for example in parts.validation]


def _texts(view: View, members: Sequence[Keyed]) -> list[str]:
    """The texts of all sides, those of one example side by side."""
    return [text for _, example in members for of_side in view.texts.values() for text in of_side(example)]


def _lengths(view: View, members: Sequence[Keyed]) -> Iterator[Lengths]:
    for side, texts in view.texts.items():
        yield from measures.text_lengths(side, [text for _, example in members for text in texts(example)])


def _contradictions(view: View, members: Sequence[Keyed]) -> int | None:
    answer = view.answer
    return None if answer is None else measures.contradictions((key, answer(example)) for key, example in members)


def _unknown(view: View, train: Sequence[Keyed], held_out: Sequence[Keyed]) -> tuple[Unknown | None, tuple[Fault, ...]]:
    """How much a vocabulary of the task's own kind misses, or why there can be none."""
    if not view.texts or not held_out:
        return None, ()
    learn, measure = (_texts(view, measures.spread(members)) for members in (train, held_out))
    try:
        return measures.unknown(view.tokenizer, learn, measure), ()
    except TextError as problem:
        return None, (Fault(f"no vocabulary: {problem}", 1),)


def _classes(view: View, members: Sequence[Keyed]) -> Counter[str]:
    classes = view.classes
    return Counter() if classes is None else Counter(name for _, example in members for name in classes(example))


def _sizes(images: Sequence[Pixels | Path]) -> Counter[str]:
    """How many images there are of each size; every file is opened, and some are decoded to the end."""
    for image in measures.spread(images, _DECODED):
        pictures.pixels(image)
    return Counter("{} × {} × {}".format(*pictures.shape(image)) for image in images)


def _of_rows(view: View, train: Sequence[Keyed], held_out: Sequence[Keyed], own: bool) -> tuple[Fault, ...]:
    """Suspicious rows in the order of the file; a validation part of its own counts its own lines."""
    in_order = sorted((*train, *held_out), key=lambda keyed: keyed.example.line)
    parts = [("line", train), ("validation line", held_out)] if own else [("line", in_order)]
    return faults.collect(
        (what, f"{word} {example.line}")
        for word, members in parts
        for _, example in members
        for what in view.look(example)
    )


def _of_classes(view: View, train: Sequence[Keyed], held_out: Sequence[Keyed]) -> Iterator[Fault]:
    if view.classes is not None:
        yield from faults.of_classes(_classes(view, train), _classes(view, held_out))


def _of_sizes(sizes: Counter[str]) -> Iterator[Fault]:
    if len(sizes) > 1:
        yield Fault("images of different sizes", len(sizes), tuple(sizes)[:3])


def _report_on_text(places: Sequence[Place], found: Sequence[Found], share: float, command: str) -> Report:
    dataset = read_places(places, [each.kind for each in found], "text", share)
    names = [f"{place.name} " for place in places] if len(places) > 1 else [""]
    texts = [*map(_Halves, names, _one_by_one(dataset.train), _one_by_one(dataset.validation))]
    train, held_out = map(sum, zip(*map(_characters, texts), strict=True))
    step = 1 + (train + held_out) // BLOCK // _BLOCKS
    lengths, suspicious = _of_lines([stream for text in texts for stream in _streams(text)], step)
    return Report(
        path=called(places),
        kind="text",
        reason="; ".join(f"{name}{each.reason}" for name, each in zip(names, found, strict=True)),
        unit="characters",
        train=train,
        validation=held_out,
        own_validation=all(map(_is_own, texts)),
        command=command,
        lengths=lengths,
        faults=suspicious,
        looked_into=1 / step,
    )


class _Halves(NamedTuple):
    """What is said before a line number of this text, what is learned from it, and what is held out."""

    name: str
    train: Iterable[str]
    held_out: Iterable[str]


def _one_by_one(text: Iterable[str]) -> Sequence[Iterable[str]]:
    return text.texts if isinstance(text, JoinedText) else (text,)


def _is_own(text: _Halves) -> bool:
    """Whether the data brought the text that is held out."""
    return not isinstance(text.held_out, TextPart) and any(True for _ in text.held_out)


def _characters(text: _Halves) -> tuple[int, int]:
    """How long the two halves are, read no more often than needed."""
    train = sum(map(len, text.train))
    if isinstance(text.held_out, TextPart):
        return train, text.held_out.whole.characters - train
    return train, sum(map(len, text.held_out))


def _streams(text: _Halves) -> Iterator[tuple[str, Iterable[str]]]:
    """(name, blocks) of every file behind a text, so that its lines can be counted."""
    whole = text.train.whole if isinstance(text.train, TextPart) else text.train
    yield from _files(text.name, whole)
    if _is_own(text):
        yield from _files(f"{text.name}validation ", text.held_out)


def _files(name: str, whole: Iterable[str]) -> Iterator[tuple[str, Iterable[str]]]:
    if isinstance(whole, RunningText):
        for file in whole.files:
            yield f"{name}{file.name} " if len(whole.files) > 1 else name, blocks(file, whole.encoding)
    else:
        yield name, whole


def _of_lines(streams: Sequence[tuple[str, Iterable[str]]], step: int) -> tuple[tuple[Lengths, ...], tuple[Fault, ...]]:
    """Lengths and faults of the lines in every `step`-th block."""
    words, characters, found = [], [], []
    for name, parts in streams:
        line = 1
        for number, block in enumerate(parts):
            if number % step == 0:
                for offset, text in enumerate(block.split("\n")):
                    found += [(what, f"{name}line {line + offset}") for what in faults.in_characters(text)]
                    if text.strip():
                        words.append(len(text.split()))
                        characters.append(len(text))
            line += block.count("\n")
    lengths = measures.lengths("line words", words), measures.lengths("line characters", characters)
    return lengths, faults.collect(found)
