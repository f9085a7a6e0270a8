"""Check a dataset before training: `check(path)` returns a `Report` of what it holds and what looks wrong."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from clearhead.config import TokenizerConfig
from clearhead.data import images, lint
from clearhead.data.dataset import (
    BUILTIN,
    common_kind,
    detect,
    find_reader,
    joined_name,
    only,
    read_parts,
    read_sources,
    resolve,
)
from clearhead.data.examples import AnyDataset, Parts, Pixels, split_by_hash, with_known_classes
from clearhead.data.files import BLOCK, blocks
from clearhead.data.lint import Fault
from clearhead.data.readers import Detected, Reader
from clearhead.data.readers.text import JoinedText, RunningText, TextPart
from clearhead.data.source import ReadOptions, Source
from clearhead.errors import TextError

_BLOCKS = 32  # of a running text that are examined
_DECODED = 200  # pictures that are fully decoded; of the others only the header is read
_SAMPLE = 20_000  # examples from which a vocabulary is learned, and on which it is tried

Member = TypeVar("Member")


@dataclass(frozen=True, slots=True)
class Lengths:
    """A summary of lengths; `most` is the 95th percentile."""

    what: str
    shortest: int
    median: int
    most: int
    longest: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The share of unknown tokens in the validation part."""

    tokenizer: str
    size: int  # tokens in the vocabulary
    share: float  # of the validation part's tokens


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`; None where a question does not apply."""

    path: str
    kind: str
    reason: str  # why the data is of this kind
    unit: str  # what is counted
    train: int
    validation: int
    own_validation: bool  # the data has a validation part; otherwise a share was held out
    command: str  # that trains on this data
    languages: tuple[str, str] | None = None
    lengths: tuple[Lengths, ...] = ()
    duplicates: int | None = None  # repeated rows
    contradictions: int | None = None  # inputs with several different answers
    leaked: int | None = None  # validation inputs that are also in the training part
    unknown: Unknown | None = None
    classes: Mapping[str, int] = field(default_factory=dict)  # labels or tags of the training part
    sizes: Mapping[str, int] = field(default_factory=dict)  # of images: height × width × channels
    looked_into: float = 1.0  # share of a long text that was examined for lengths and faults
    faults: tuple[Fault, ...] = ()


class Keyed(NamedTuple):
    """An example and its identity."""

    key: bytes
    example: Any


def check(
    path: str | Path,
    *,
    kind: str | None = None,
    source: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    validation: float | None = None,
) -> Report:
    """Read a path as training would, and report on it; the arguments are those of `read`."""
    if kind is not None:
        find_reader(kind)
    options = ReadOptions(encoding, source, target)
    sources = resolve(path, options)
    found = [detect(each, kind) for each in sources]
    common = kind or common_kind(found)
    reader = find_reader(common)
    command = _command(joined_name(sources), reader.task, kind, options)
    if reader.example_kind == "text":
        return _check_text(sources, found, common, validation, command)
    return _check_examples(only(sources), found[0], validation, command)


def _command(path: str, task: str, kind: str | None, options: ReadOptions) -> str:
    """The shortest command that trains on this data, read in this way."""
    encoding = None if options.encoding == ReadOptions().encoding else options.encoding
    forced = None if path == BUILTIN else kind  # the task implies which built-in data is meant
    given = {"kind": forced, "source": options.source, "target": options.target, "encoding": encoding}
    words = ["clearhead", "train", task, "--data", path]
    return shlex.join(words + [f"data.{key}={value}" for key, value in given.items() if value])


# ---- Examples


def _check_examples(source: Source, found: Detected, share: float | None, command: str) -> Report:
    reader = find_reader(found.kind)
    parts = read_parts(source, reader)
    own = parts.validation is not None
    train, held_out = _with_keys(reader, parts, share)
    both = train + held_out
    texts = _texts_by_side(reader, both)
    sizes = _image_sizes([image for _, example in both if (image := reader.image(example)) is not None])
    train_classes, held_out_classes = _class_counts(reader, train), _class_counts(reader, held_out)
    unknown, no_vocabulary = _unknown_tokens(reader, train, held_out)
    return Report(
        path=source.name,
        kind=found.kind,
        reason=found.reason,
        unit=reader.unit,
        train=len(train),
        validation=len(held_out),
        own_validation=own,
        command=command,
        languages=reader.languages(source),
        lengths=tuple(each for side, values in texts.items() for each in text_lengths(side, values)),
        duplicates=count_duplicates([reader.row(*keyed) for keyed in both]),
        contradictions=_contradictions(reader, both),
        leaked=count_leaked((key for key, _ in train), (key for key, _ in held_out)) if own else None,
        unknown=unknown,
        classes=dict(train_classes.most_common()),
        sizes=dict(sizes.most_common()),
        faults=(
            *no_vocabulary,
            *_row_faults(reader, train, held_out, own),
            *lint.class_problems(train_classes, held_out_classes),
            *([Fault("images of different sizes", len(sizes), tuple(sizes)[:3])] if len(sizes) > 1 else []),
        ),
    )


def faults_of(dataset: AnyDataset) -> tuple[Fault, ...]:
    """What `check` would flag in examples that were just read; images and running text are not examined again."""
    reader = find_reader(dataset.kind)
    if reader.example_kind == "text":
        return ()
    train, held_out = ([Keyed(b"", each) for each in part] for part in (dataset.train, dataset.validation))
    found = _row_faults(reader, train, held_out, own=True)
    classes = lint.class_problems(_class_counts(reader, train), _class_counts(reader, held_out))
    has_images = any(reader.image(keyed.example) is not None for keyed in train[:1])
    rows = [] if has_images else [reader.row(*keyed) for keyed in train]
    repeated = [Fault(f"repeated {reader.unit}", count)] if (count := count_duplicates(rows)) else []
    return (*found, *classes, *repeated)


def _with_keys(reader: Reader, parts: Parts[Sequence[Any]], share: float | None) -> tuple[list[Keyed], list[Keyed]]:
    """Both parts with their identities, computed once: those of images are hashes of files."""
    train = [Keyed(reader.identity(example), example) for example in parts.train]
    if parts.validation is None:
        sides = split_by_hash(train, share, lambda keyed: keyed.key)
        return with_known_classes(*sides, lambda keyed: keyed.key, lambda keyed: reader.classes(keyed.example))
    return train, [Keyed(reader.identity(example), example) for example in parts.validation]


def _texts_by_side(reader: Reader, members: Sequence[Keyed]) -> dict[str, list[str]]:
    sides: dict[str, list[str]] = {}
    for _, example in members:
        for side, texts in reader.texts(example).items():
            sides.setdefault(side, []).extend(texts)
    return sides


def _contradictions(reader: Reader, members: Sequence[Keyed]) -> int | None:
    answers = [(key, reader.answer(example)) for key, example in members]
    return None if any(answer is None for _, answer in answers) else count_contradictions(answers)


def _unknown_tokens(
    reader: Reader, train: Sequence[Keyed], held_out: Sequence[Keyed]
) -> tuple[Unknown | None, tuple[Fault, ...]]:
    """The share of unknown tokens with the task's default tokenizer, or why it cannot be trained."""
    known, new = (
        [text for _, example in spread(members) for texts in reader.texts(example).values() for text in texts]
        for members in (train, held_out)
    )
    if not known or not held_out:
        return None, ()
    try:
        return unknown_tokens(reader.tokenizer, known, new), ()
    except TextError as problem:
        return None, (Fault(f"no vocabulary: {problem}", 1),)


def _class_counts(reader: Reader, members: Sequence[Keyed]) -> Counter[str]:
    return Counter(name for _, example in members for name in reader.classes(example))


def _image_sizes(found: Sequence[Pixels | Path]) -> Counter[str]:
    """How many images there are of each size; every file is opened, and some are fully decoded."""
    for image in spread(found, _DECODED):
        images.pixels(image)
    return Counter("{} × {} × {}".format(*images.image_shape(image)) for image in found)


def _row_faults(reader: Reader, train: Sequence[Keyed], held_out: Sequence[Keyed], own: bool) -> tuple[Fault, ...]:
    """The problems of rows in the order of the file; a validation part has its own line numbers."""
    in_order = sorted((*train, *held_out), key=lambda keyed: keyed.example.line)
    parts = [("line", train), ("validation line", held_out)] if own else [("line", in_order)]
    return lint.collect(
        (problem, f"{word} {example.line}")
        for word, members in parts
        for _, example in members
        for problem in reader.problems(example)
    )


# ---- Running text


class _TextParts(NamedTuple):
    """The training and validation text of one source; `name` stands before its line numbers."""

    name: str
    train: Iterable[str]
    held_out: Iterable[str]


def _check_text(
    sources: Sequence[Source], found: Sequence[Detected], kind: str, share: float | None, command: str
) -> Report:
    dataset = read_sources(sources, found, kind, share)
    names = [f"{source.name} " for source in sources] if len(sources) > 1 else [""]
    texts = [*map(_TextParts, names, _joined_texts(dataset.train), _joined_texts(dataset.validation))]
    train, held_out = map(sum, zip(*map(_count_characters, texts), strict=True))
    step = 1 + (train + held_out) // BLOCK // _BLOCKS
    lengths, faults = _line_statistics([stream for text in texts for stream in _streams(text)], step)
    return Report(
        path=joined_name(sources),
        kind=kind,
        reason="; ".join(f"{name}{each.reason}" for name, each in zip(names, found, strict=True)),
        unit="characters",
        train=train,
        validation=held_out,
        own_validation=all(map(_has_own_validation, texts)),
        command=command,
        lengths=lengths,
        faults=faults,
        looked_into=1 / step,
    )


def _joined_texts(text: Iterable[str]) -> Sequence[Iterable[str]]:
    return text.texts if isinstance(text, JoinedText) else (text,)


def _has_own_validation(text: _TextParts) -> bool:
    return not isinstance(text.held_out, TextPart) and any(True for _ in text.held_out)


def _count_characters(text: _TextParts) -> tuple[int, int]:
    """The lengths of the two parts, read no more often than needed."""
    train = sum(map(len, text.train))
    if isinstance(text.held_out, TextPart):
        return train, text.held_out.whole.characters - train
    return train, sum(map(len, text.held_out))


def _streams(text: _TextParts) -> Iterator[tuple[str, Iterable[str]]]:
    """(name, blocks) of every file of a text, so that its lines can be counted."""
    yield from _files(text.name, text.train.whole if isinstance(text.train, TextPart) else text.train)
    if _has_own_validation(text):
        yield from _files(f"{text.name}validation ", text.held_out)


def _files(name: str, whole: Iterable[str]) -> Iterator[tuple[str, Iterable[str]]]:
    if isinstance(whole, RunningText):
        for file in whole.files:
            yield f"{name}{file.name} " if len(whole.files) > 1 else name, blocks(file, whole.encoding)
    else:
        yield name, whole


def _line_statistics(
    streams: Sequence[tuple[str, Iterable[str]]], step: int
) -> tuple[tuple[Lengths, ...], tuple[Fault, ...]]:
    """Lengths and faults of the lines in every `step`-th block."""
    words, characters, found = [], [], []
    for name, parts in streams:
        line = 1
        for number, block in enumerate(parts):
            if number % step == 0:
                for offset, text in enumerate(block.split("\n")):
                    found += [(problem, f"{name}line {line + offset}") for problem in lint.character_problems(text)]
                    if text.strip():
                        words.append(len(text.split()))
                        characters.append(len(text))
            line += block.count("\n")
    lengths = summarize("line words", words), summarize("line characters", characters)
    return lengths, lint.collect(found)


# ---- Statistics


def summarize(what: str, values: Iterable[int]) -> Lengths:
    """Summarise lengths; all zeros if there are none."""
    array = np.fromiter(values, dtype=np.int64)
    if not array.size:
        return Lengths(what, 0, 0, 0, 0)
    median, most = np.percentile(array, (50, 95), method="nearest")
    return Lengths(what, int(array.min()), int(median), int(most), int(array.max()))


def text_lengths(what: str, texts: Sequence[str]) -> tuple[Lengths, Lengths]:
    """Lengths in words and in characters."""
    words = summarize(f"{what} words", (len(text.split()) for text in texts))
    return words, summarize(f"{what} characters", map(len, texts))


def count_duplicates(rows: Sequence[Hashable]) -> int:
    """How many rows repeat an earlier one."""
    return len(rows) - len(set(rows))


def count_contradictions(rows: Iterable[tuple[Hashable, Hashable]]) -> int:
    """How many inputs of (input, answer) rows have several different answers."""
    answers: dict[Hashable, Hashable] = {}
    several = set()
    for source, answer in rows:
        if answers.setdefault(source, answer) != answer:
            several.add(source)
    return len(several)


def count_leaked(train: Iterable[bytes], validation: Iterable[bytes]) -> int:
    """How many validation inputs are also in the training part."""
    seen = set(train)
    return sum(key in seen for key in validation)


def spread(members: Sequence[Member], count: int = _SAMPLE) -> Sequence[Member]:
    """At most `count` members at equal distances, since a file may be sorted by length."""
    return members[:: max(1, -(-len(members) // count))]


def unknown_tokens(config: TokenizerConfig, train: Sequence[str], validation: Sequence[str]) -> Unknown:
    """Train a tokenizer as training would, and count its unknown tokens in other texts."""
    from clearhead.text import Tokenizer

    tokenizer = Tokenizer.train(config.kind, train, size=config.size, lowercase=config.lowercase)
    rows = tokenizer.encode_batch(validation)
    share = sum(row.count(tokenizer.unknown) for row in rows) / max(1, sum(map(len, rows)))
    return Unknown(config.kind, len(tokenizer), share)
