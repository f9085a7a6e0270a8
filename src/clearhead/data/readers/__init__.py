"""Readers: each detects what it can read, reads it, and defines its checks. One file here is one kind of data.

A reader from outside the package is a class in a file named by `$CLEARHEAD_PLUGINS`, or an entry point of the group
`clearhead.readers`. `data.kind=records` then selects it, detection asks it, and `clearhead data check` uses it:

    @READERS.register("records")
    class RecordReader(PairReader):
        suffixes = frozenset({".rec"})

        def can_read(self, source):
            if source.is_file and source.path.suffix == ".rec":
                return Detected("blocks of key: value lines", Certainty.CERTAIN)

        def read_file(self, source, file):
            ...                                         # yields Pair(source, target, line)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

from clearhead.config import TokenizerConfig
from clearhead.data.examples import Parts, Pixels, split_by_hash, with_known_classes
from clearhead.data.files import files_in, folders_in, is_documentation, part_name, sort_into_parts, suffix
from clearhead.data.source import Source
from clearhead.errors import DataError
from clearhead.registry import Registry


class Certainty(IntEnum):
    """How sure a reader is; of several readers that can read a source, the surest one does."""

    GUESS = 1  # it fits, and nothing else does better
    LIKELY = 2  # the values look like it
    NAMED = 3  # columns, files or folders have its names
    CERTAIN = 4  # the layout fits nothing else


@dataclass(frozen=True, slots=True)
class Detected:
    """Why a reader can read a source, as the end of the sentence "it has …"."""

    reason: str
    certainty: Certainty = Certainty.LIKELY
    kind: str = ""  # the name of the reader, filled in by `detect`


class Reader(ABC):
    """Reads one kind of data.

    A subclass implements `can_read`, `identity`, and `read_file` (or `read`, where a dataset is not a file for each
    part). The methods after these describe an example to `clearhead data check`; each has a default.
    """

    example_kind: ClassVar[str]  # the kind of its examples, which a task asks for: pairs, text, labelled, …
    title: ClassVar[str]  # what it reads, in a report
    unit: ClassVar[str]  # what is counted
    task: ClassVar[str]  # the task that trains on it, as `data check` suggests
    tokenizer: ClassVar[TokenizerConfig] = TokenizerConfig()  # that `data check` tries on it
    suffixes: ClassVar[frozenset[str]] = frozenset()  # files in a folder that may be its data
    reads_aligned_files: ClassVar[bool] = False  # two files `a,b`

    @abstractmethod
    def can_read(self, source: Source) -> Detected | None:
        """Why this reader can read the source, or None; a DataError if nobody can.

        A folder that no reader can read as a whole is offered a second time by its first training file.
        """

    def read(self, source: Source) -> Parts[Any]:
        """All examples of the source, with the validation part if the source has one."""
        parts = find_parts(source.path)
        train = [example for file in parts.train for example in self.read_file(source, file)]
        if parts.validation is None:
            return Parts(train, None)
        return Parts(train, [example for file in parts.validation for example in self.read_file(source, file)])

    def read_file(self, source: Source, file: Path) -> Iterable[Any]:
        """The examples of one file."""
        raise NotImplementedError

    @abstractmethod
    def identity(self, example: Any) -> bytes:
        """The model's input as a key: examples with equal keys are on the same side of a split."""

    def split(self, examples: Any, share: float | None) -> tuple[Any, Any]:
        """The training and validation side, where the source has no validation part."""
        return with_known_classes(*split_by_hash(examples, share, self.identity), self.identity, self.classes)

    def running_text(self, source: Source) -> Parts[Any] | None:
        """The text of a source for a language model; None if it is simply the content of the files."""
        return None

    def columns(self, source: Source) -> str:
        """Which columns of a table are read, and which are not; empty where there is no choice."""
        return ""

    # ---- For `data check`

    def texts(self, example: Any) -> Mapping[str, Sequence[str]]:
        """The texts of each side: {"source": [...], "target": [...]}."""
        return {}

    def row(self, key: bytes, example: Any) -> Hashable:
        """A key that is equal for duplicates; `key` is the example's identity."""
        return key

    def answer(self, example: Any) -> Hashable | None:
        """The model's expected output; None where several are right."""
        return None

    def classes(self, example: Any) -> Sequence[str]:
        """The labels or tags of an example."""
        return ()

    def image(self, example: Any) -> Pixels | Path | None:
        """The image of an example."""
        return None

    def problems(self, example: Any) -> Iterator[str]:
        """What looks wrong in an example."""
        return iter(())

    def languages(self, source: Source) -> tuple[str, str] | None:
        """The two languages, where files or columns are named after them."""
        return None


READERS: Registry[type[Reader]] = Registry("reader", "clearhead.data.readers")


def data_files(folder: Path) -> list[Path]:
    """The files of a folder that a reader may read one by one, without documentation."""
    known = frozenset[str]().union(*(READERS[name].suffixes for name in READERS))
    return [file for file in files_in(folder) if suffix(file) in known and not is_documentation(file)]


def find_parts(path: Path) -> Parts[list[Path]]:
    """The training and validation files of a path: the file itself, or those of the folder."""
    if path.is_file():
        return Parts([path], None)
    found = data_files(path)
    parts = sort_into_parts(found)
    if not files_in(path) and not folders_in(path):
        raise DataError("is an empty folder", path=path)
    if not found:
        raise DataError(f"holds no data files (.csv, .tsv, .jsonl, .txt, .conll){_advice(path)}", path=path)
    if len(parts.train) > 1 and part_name(parts.train[0]) != "train":
        some = ", ".join(file.name for file in found[:4]) + (", …" if len(found) > 4 else "")
        raise DataError(f"holds several data files ({some}); give one, or name them train.* and valid.*", path=path)
    return parts


def _advice(folder: Path) -> str:
    """The end of the error about a folder without data: an archive to unpack, or its subfolders."""
    for file in files_in(folder):
        if file.suffix in (".zip", ".tgz") or ".tar" in file.suffixes:
            return f"; unpack {file.name} first"
    inner = [entry.name for entry in folders_in(folder)]
    return f"; its folders are {', '.join(inner[:4])}{', …' if len(inner) > 4 else ''}" if inner else ""
