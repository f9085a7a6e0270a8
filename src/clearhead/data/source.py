"""One source of data: where it lies, how to read it, and the previews of its files that readers share.

    [source] = resolve("pairs.tsv", ReadOptions(encoding="latin-1"))       # dataset.py
    source.path, source.options, source.head(), source.table()

A file is opened once to find out what it holds and once to read it: its first lines and the table built from them stay
with the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clearhead.data.files import PICTURES, Line, Preview
from clearhead.data.tables import Table, inspect, is_table
from clearhead.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a path: its encoding, and which columns or languages are the two sides."""

    encoding: str = "utf-8"
    source: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        try:
            is_ascii = self.encoding == "utf-8-sig" or "\n\t,".encode(self.encoding) == b"\n\t,"
        except (LookupError, ValueError):
            raise ConfigError(f"unknown encoding {self.encoding}; try utf-8, latin-1 or cp1252") from None
        if not is_ascii:
            raise ConfigError(f"encoding {self.encoding} is not supported; convert the file to utf-8 first")


@dataclass(frozen=True)
class Source:
    """A file or folder, two aligned files, or the built-in data; `name` is what the user calls it."""

    name: str
    paths: tuple[Path, ...]  # none for the built-in data
    options: ReadOptions
    _previews: dict[Path, Preview] = field(default_factory=dict, compare=False, repr=False)
    _tables: dict[Path, Table] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_builtin(self) -> bool:
        return not self.paths

    @property
    def is_aligned(self) -> bool:
        """Whether it is two files whose lines belong together."""
        return len(self.paths) == 2

    @property
    def is_folder(self) -> bool:
        return len(self.paths) == 1 and self.path.is_dir()

    @property
    def is_file(self) -> bool:
        return len(self.paths) == 1 and self.path.is_file()

    @property
    def path(self) -> Path:
        """The file or folder, of two files the first."""
        return self.paths[0]

    def at(self, file: Path) -> Source:
        """One file of a folder as a source, which shares the previews."""
        return Source(self.name, (file,), self.options, self._previews, self._tables)

    def preview(self, file: Path | None = None) -> Preview:
        """The first lines of a file, by default of the path."""
        file = file or self.path
        if file not in self._previews:
            self._previews[file] = Preview(file, self.options.encoding)
        return self._previews[file]

    def head(self, file: Path | None = None) -> list[Line]:
        """The first (number, line) of a text file; a file without text is an error."""
        file = file or self.path
        if file.suffix.lower() in PICTURES:
            raise DataError("is a single picture; give the folder of a dataset", path=file)
        rows = self.preview(file).head()
        if not any(line.strip() for _, line in rows):
            raise DataError("is empty", path=file)
        return rows

    def is_table(self, file: Path | None = None) -> bool:
        """Whether a text file has rows of columns."""
        file = file or self.path
        return is_table(file, [line for _, line in self.head(file)])

    def table(self, file: Path | None = None) -> Table:
        """The columns of a table, by default those of the path."""
        file = file or self.path
        if file not in self._tables:
            self._tables[file] = inspect(self.preview(file), (self.options.source, self.options.target))
        return self._tables[file]

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close the previewed files afterwards; what was read of them stays."""
        try:
            yield
        finally:
            for preview in self._previews.values():
                preview.close()
