"""From a path to a dataset: resolve the path, detect its kind, read it, and hold out a part for validation.

    dataset = read("pairs.tsv")

The steps of `read` can be taken one by one:

    sources = resolve("wikitext2+sst2", ReadOptions())
    found = [detect(source) for source in sources]          # text, labelled
    dataset = read_sources(sources, found, "text", share=0.05)

The name of a known dataset is looked for below `$CLEARHEAD_DATA` and in the cache, and else downloaded; a file or
folder of that name takes precedence, unless it is a run directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.data import builtin
from clearhead.data.catalogue import CATALOGUE, Use
from clearhead.data.examples import AnyDataset, Dataset, Parts
from clearhead.data.files import existing
from clearhead.data.hub import get
from clearhead.data.readers import READERS, Certainty, Detected, Reader, find_parts
from clearhead.data.readers.text import JoinedText, Text, TextInMemory
from clearhead.data.source import ReadOptions, Source
from clearhead.errors import ConfigError, DataError, nearest

BUILTIN = "builtin"  # the path of the data that comes with the package


def read(
    path: str | Path,
    *,
    kind: str | None = None,
    source: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    validation: float | None = None,
) -> AnyDataset:
    """Read a file, a folder, a known dataset by its name, two aligned files `a,b`, several sources `a+b`, or `builtin`.

    `kind` is the name of a reader; by default it is detected. `validation` is the share of the examples to hold out if
    the data has no validation part: 5 % by default, but of much data no more than 1,000 or 100,000 characters.
    """
    if kind is not None:
        find_reader(kind)
    sources = resolve(path, ReadOptions(encoding, source, target))
    found = [detect(each, kind) for each in sources]
    return read_sources(sources, found, kind or common_kind(found), validation)


# ---- Resolve


def resolve(path: str | Path, options: ReadOptions) -> tuple[Source, ...]:
    """The source that a path or a name stands for, or the sources of `a+b`."""
    if path == BUILTIN:
        return (Source(BUILTIN, (), options),)
    if files := _aligned_files(path):
        return (Source(str(path), files, options),)
    return tuple(_resolve_one(part, options) for part in _joined_parts(path))


def absolute(path: str) -> str:
    """A path as it is written in every working directory; names of datasets stay as they are."""
    if path == BUILTIN or (path in CATALOGUE and not _exists(path)):
        return path
    if "," in path and not _exists(path):
        return ",".join(str(Path(half.strip()).absolute()) for half in path.split(","))
    return "+".join(str(Path(part).absolute()) if _exists(part) else str(part) for part in _joined_parts(path))


def only(sources: Sequence[Source]) -> Source:
    """The single source; several are an error."""
    if len(sources) > 1:
        message = f"joins {len(sources)} sources with +, and only running text is checked together; give one of them"
        raise DataError(message, path=joined_name(sources))
    return sources[0]


def joined_name(sources: Sequence[Source]) -> str:
    """The path as the user gave it: `a+b`."""
    return "+".join(source.name for source in sources)


def _aligned_files(path: str | Path) -> tuple[Path, Path] | None:
    """The two files of `a,b`; None if the path is one file or folder."""
    halves = str(path).split(",")
    if len(halves) != 2 or not all(halves) or Path(path).exists():
        return None
    first, second = (existing(half.strip()) for half in halves)
    for file in (first, second):
        if file.is_dir():
            raise DataError("is a folder; two aligned files are needed", path=file)
    return first, second


def _joined_parts(path: str | Path) -> list[str] | list[str | Path]:
    """The parts of `a+b`; a path that exists, or none of whose parts does, is one path."""
    parts = [part.strip() for part in str(path).split("+")]
    joined = isinstance(path, str) and all(parts) and not _exists(path)
    return parts if joined and any(_is_known(part) for part in parts) else [path]


def _resolve_one(path: str | Path, options: ReadOptions) -> Source:
    if path == BUILTIN:
        return Source(BUILTIN, (), options)
    if isinstance(path, str) and path in CATALOGUE and (not _exists(path) or _is_run(path)):
        found = get(path)
        return Source(path, (found.path,), _with_defaults(options, found.entry.use))
    return Source(str(path), (existing(path, CATALOGUE),), options)


def _with_defaults(options: ReadOptions, use: Use) -> ReadOptions:
    """The user's options, completed by the dataset's; one column or language is never both sides."""
    encoding = options.encoding if options.encoding != ReadOptions().encoding else use.encoding or options.encoding
    source = options.source or (use.target if options.target == use.source else use.source)
    target = options.target or (use.source if source == use.target else use.target)
    return ReadOptions(encoding, source, target)


def _is_known(name: str) -> bool:
    return name == BUILTIN or name in CATALOGUE or _exists(name)


def _is_run(path: str) -> bool:
    """Whether a folder is a trained model: `clearhead train trec.yaml --out trec` does not train on its own run."""
    return (Path(path) / "config.yaml").is_file()


def _exists(path: str | Path) -> bool:
    with suppress(OSError, ValueError):  # a name that no file can have; opening it gives the reason
        return Path(path).exists()
    return False


# ---- Detect


def find_reader(kind: str) -> Reader:
    """The reader of this name, from the package or from a plugin."""
    if kind not in READERS:
        raise ConfigError(f"unknown kind {kind}; {nearest(kind, READERS)}")
    return READERS[kind]()


def detect(source: Source | str | Path, kind: str | None = None, options: ReadOptions | None = None) -> Detected:
    """The reader for a source and the reason; `kind` is the user's choice, which needs no reason."""
    if not isinstance(source, Source):
        files = _aligned_files(source) or (existing(source),)
        source = Source(str(source), files, options or ReadOptions())
    if kind is not None:
        return Detected("as specified", Certainty.CERTAIN, kind)
    if source.is_builtin:
        kinds = ", ".join(builtin.KINDS)
        raise ConfigError(f"{BUILTIN} has data of every kind; choose with --kind (data.kind=…) from: {kinds}")
    with source.closing():
        if found := _surest(source):
            return found
        if source.is_folder:
            first = find_parts(source.path).train[0]
            if found := _surest(source.at(first)):
                return replace(found, reason=f"{first.name} has {found.reason}")
    raise DataError("is nothing that a reader can read", path=source.path)


def chosen_reader(chosen: str | None, kind: str, sources: Sequence[Source]) -> str | None:
    """The reader for a task that needs examples of a kind; None if it is to be detected.

    The user's choice decides if it yields that kind; any other choice means that the data is of the task's kind.
    """
    if chosen is not None:
        return chosen if find_reader(chosen).example_kind == kind else kind
    return kind if len(sources) == 1 and sources[0].is_builtin else None


def common_kind(found: Sequence[Detected]) -> str:
    """The kind of sources that are read together: of several it is text, unless a task asks for another."""
    return found[0].kind if len(found) == 1 else "text"


def _surest(source: Source) -> Detected | None:
    """The surest claim of all readers; an error of one of them outweighs a guess of another.

    Equal claims: the package's readers come first, in the order of their names. So `captions` comes before `images`
    (a folder with both is one of captions) and before `pairs` (image names are not a language).
    """
    claims, problem = [], None
    for kind in READERS:
        try:
            claim = READERS[kind]().can_read(source)
        except DataError as error:
            problem = problem or error
        else:
            claims += [replace(claim, kind=kind)] if claim else []
    best = max(claims, key=lambda claim: claim.certainty, default=None)
    if problem is not None and (best is None or best.certainty is Certainty.GUESS):
        raise problem
    return best


# ---- Read


def read_sources(sources: Sequence[Source], found: Sequence[Detected], kind: str, share: float | None) -> AnyDataset:
    """Read data of one kind from sources that were detected as `found`."""
    if find_reader(kind).example_kind == "text":
        texts = [_read_text(source, each, kind, share) for source, each in zip(sources, found, strict=True)]
        train, held_out = zip(*texts, strict=True)
        joined = texts[0] if len(texts) == 1 else (JoinedText(train), JoinedText(held_out))
        notes = [_text_columns(source, each) for source, each in zip(sources, found, strict=True)]
        return Dataset("text", *joined, joined_name(sources), "; ".join(filter(None, notes)))
    datasets = [_read_examples(source, each, kind, share) for source, each in zip(sources, found, strict=True)]
    return datasets[0] if len(datasets) == 1 else _joined(datasets, find_reader(kind), joined_name(sources))


def _read_examples(source: Source, found: Detected, kind: str, share: float | None) -> AnyDataset:
    reader = reader_for(found, kind)
    parts = read_parts(source, reader)
    columns = "" if source.is_builtin else reader.columns(source)
    if parts.validation is not None:
        return Dataset(reader.example_kind, parts.train, parts.validation, source.name, columns)
    return Dataset(reader.example_kind, *reader.split(parts.train, share), source.name, columns)


def _joined(datasets: Sequence[AnyDataset], reader: Reader, name: str) -> AnyDataset:
    """Several datasets as one; what one of them holds out is not in the training part of another."""
    held_out = [example for dataset in datasets for example in dataset.validation]
    keys = {reader.identity(example) for example in held_out}
    train = [each for dataset in datasets for each in dataset.train if reader.identity(each) not in keys]
    columns = "; ".join(dataset.columns for dataset in datasets if dataset.columns)
    return Dataset(reader.example_kind, train, held_out, name, columns)


def reader_for(found: Detected, kind: str) -> Reader:
    """The detected reader if its examples are of this kind, else the reader named like the kind."""
    detected, named = find_reader(found.kind), find_reader(kind)
    return detected if detected.example_kind == named.example_kind else named


def read_parts(source: Source, reader: Reader) -> Parts[Any]:
    """The examples of a source, with the validation part if the source has one."""
    if source.is_builtin:
        examples = builtin.examples(reader.example_kind)
        return Parts(TextInMemory(examples) if reader.example_kind == "text" else examples, None)
    if source.is_aligned and not reader.reads_aligned_files:
        raise DataError("is two aligned files, which only translation pairs can be; give one of them", path=source.name)
    parts = reader.read(source)
    if isinstance(parts.train, Sequence) and not parts.train:
        raise DataError("is empty", path=source.name)
    return parts


def _text_columns(source: Source, found: Detected) -> str:
    """What is read of a source that is not simply a text."""
    reader = find_reader(found.kind)
    if source.is_builtin or source.is_aligned:
        return ""
    if reader.example_kind == "text":
        return reader.columns(source)
    if type(reader).running_text is Reader.running_text:
        return f"looks like {found.kind} ({found.reason}), and is read as it is"
    return f"has {found.reason}: its texts are read without the labels; data.kind=text reads it as it is"


def _read_text(source: Source, found: Detected, kind: str, share: float | None) -> tuple[Text, Text]:
    """The running text of one source, split into training and validation text."""
    reader = reader_for(found, kind)
    train, held_out = find_reader(found.kind).running_text(source) or read_parts(source, reader)
    return reader.split(train, share) if held_out is None else (train, held_out)
