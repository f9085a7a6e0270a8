"""Texts in one column of a table, as JSON Lines of `{"text": …}`: running text for a language model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clearhead.data.examples import Parts
from clearhead.data.files import TABLES
from clearhead.data.readers import READERS, Detected, find_parts
from clearhead.data.readers.text import RunningText, TextReader
from clearhead.data.source import ReadOptions, Source
from clearhead.data.tables import LABEL, TEXT, Table
from clearhead.errors import DataError

_WORDS = 3  # more on average are a text, and not a name, a number or an address


class TextColumn(RunningText):
    """The texts of one column of some tables, each ended by a line break."""

    def __init__(self, tables: tuple[Table, ...], column: str):
        super().__init__([table.path for table in tables], tables[0].encoding)
        self.tables, self.column = tables, column

    def __iter__(self) -> Iterator[str]:
        for table in self.tables:
            for _, (text,) in table.rows(table.column(self.column)):
                if text.strip():
                    yield text if text.endswith("\n") else f"{text}\n"


@READERS.register("texts")
class TextsReader(TextReader):
    """Reads one column of a table as running text."""

    title = "texts in a column"
    suffixes = TABLES

    def can_read(self, source: Source) -> Detected | None:
        if not source.is_file or not source.is_table():
            return None
        table = source.table()
        index = 0 if table.width == 1 else table.find(TEXT)
        if index is None or (table.width > 1 and table.find(LABEL) is not None):
            return None
        others = (other for other in range(table.width) if other != index)
        if _mean_words(table, index) <= _WORDS or any(_mean_words(table, other) > _WORDS for other in others):
            return None
        return Detected(f"a column of texts, {table.name(index)}")

    def read(self, source: Source) -> Parts[RunningText]:
        parts = find_parts(source.path)
        column = text_column(source.table(parts.train[0]), source.options)

        def read(files: list[Path]) -> RunningText:
            return TextColumn(tuple(source.table(file) for file in files), column)

        return Parts(read(parts.train), None if parts.validation is None else read(parts.validation))

    def columns(self, source: Source) -> str:
        table = source.table(find_parts(source.path).train[0])
        column = text_column(table, source.options)
        return f"the text is column {column}{table.unused(table.column(column))}"


def text_column(table: Table, options: ReadOptions) -> str:
    """The name or number of the column with the texts: as the user chose, the only one, else by its name."""
    if options.source is not None:
        return table.name(table.column(options.source))
    index = 0 if table.width == 1 else table.find(TEXT)
    if index is None:
        message = f"has the columns {table.listed_names()}; choose the one with the texts with --source"
        raise DataError(f"{message} (data.source=…)", path=table.path)
    return table.name(index)


def _mean_words(table: Table, index: int) -> float:
    values = table.values(index)
    return sum(len(value.split()) for value in values) / max(1, len(values))
