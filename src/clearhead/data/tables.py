"""Tables: rows of named or numbered columns from TSV, CSV and JSON Lines.

`inspect` looks at the first rows of a file for its format and header; `Table.rows` then streams chosen columns of all
of them. TSV has no quoting: a tab always separates. Every row must have as many columns as the first.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from clearhead.data.files import TABLES, Line, Preview, lines, suffix
from clearhead.errors import DataError, nearest

SAMPLE = 1000  # rows examined to decide what the columns are
_BUDGET = 4 << 20  # characters in a sample
_HALF_PAIR = re.compile("[\ud800-\udfff]")

# Column names that say what a column holds, in lower case.
SOURCE = frozenset({"source", "src"})
TARGET = frozenset({"target", "tgt", "trg"})
LABEL = frozenset({"label", "labels", "class", "category", "sentiment", "target", "y"})
TEXT = frozenset({"text", "sentence", "content", "review", "body", "question", "document", "message", "title"})
IMAGE = frozenset({"image", "image_name", "file", "file_name", "filename", "path"})
CAPTION = frozenset({"caption", "captions", "comment", "description"})
COLUMNS = SOURCE | TARGET | LABEL | TEXT | IMAGE | CAPTION

# ISO 639-1, and the names of the languages that sentence collections use most.
_LANGUAGES = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv
    ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne
    ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st
    su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    arabic chinese czech danish dutch english finnish french german greek hebrew hindi hungarian italian japanese
    korean norwegian polish portuguese romanian russian spanish swedish turkish ukrainian vietnamese
"""
LANGUAGES = frozenset(_LANGUAGES.split())

Cells = Sequence[str | None]  # None: a JSON row without this key, or with something that is not text
Row = tuple[int, Cells]  # line, cells
Format = Literal["tsv", "csv", "jsonl"]


@dataclass(frozen=True)
class Table:
    """The path, format, column names and first rows of a file of rows."""

    path: Path
    format: Format
    encoding: str
    delimiter: str
    width: int
    names: tuple[str, ...]  # empty without a header
    header: int  # the line of the header, 0 without one
    sample: tuple[Row, ...]

    def column(self, wanted: str) -> int:
        """The index of a column given by its name, or by its number (the first is 1)."""
        for fold in (str, str.casefold):
            folded = [fold(name) for name in self.names]
            if fold(wanted) in folded:
                return folded.index(fold(wanted))
        if wanted.isdecimal() and 1 <= int(wanted) <= self.width:
            return int(wanted) - 1
        if self.names:
            raise DataError(f"has no column {wanted}; {nearest(wanted, map(printable, self.names))}", path=self.path)
        raise DataError(f"has no header and no column {wanted}; choose from 1 to {self.width}", path=self.path)

    def name(self, index: int) -> str:
        """The name of a column, or its number where there is no header."""
        return self.names[index] if self.names else str(index + 1)

    def listed_names(self) -> str:
        """The first names for an error message."""
        return ", ".join(printable(self.name(index)) for index in range(min(self.width, 12)))

    def unused(self, *indices: int) -> str:
        """The end of a sentence that says which columns are left out."""
        others = [printable(self.name(index)) for index in range(self.width) if index not in indices]
        return f" (not read: {', '.join(others[:8])})" if others else ""

    def find(self, known: frozenset[str]) -> int | None:
        """The index of the first column whose name is one of `known`."""
        return next((index for index, name in enumerate(self.names) if name.strip().casefold() in known), None)

    def values(self, index: int) -> list[str]:
        """One column of the first rows."""
        return [cells[index] or "" for _, cells in self.sample]

    def rows(self, *indices: int) -> Iterator[tuple[int, list[str]]]:
        """Yield (line, texts) of every row of the file, in the given columns."""
        rows = _rows(lines(self.path, self.encoding), self.path, self.format, self.delimiter, self.names)
        for line, cells in rows:
            if line == self.header:
                continue
            if len(cells) != self.width:
                raise _uneven(self.path, line, len(cells), self.width)
            yield line, [_present(self, line, cells, index) for index in indices]


def inspect(preview: Preview, wanted: Iterable[str | None] = ()) -> Table:
    """Find format, width and header from the first rows; `wanted` are column names that the user gave."""
    path, encoding = preview.path, preview.encoding
    first = next((line for _, line in preview), "")
    format = _format(path, first)
    delimiter = "\t" if format == "tsv" else next((mark for mark in ",;\t" if mark in first), ",")
    keys = _keys(preview, path) if format == "jsonl" else ()
    sample = _sample(_rows(preview, path, format, delimiter, keys))
    if not sample:
        raise DataError("is empty", path=path)
    line, first_row = sample[0]
    if format == "jsonl":
        return Table(path, format, encoding, delimiter, len(keys), keys, 0, tuple(sample))
    cells = tuple(cell or "" for cell in first_row)
    if not _is_header(cells, [cells for _, cells in sample[1:]], [name for name in wanted if name]):
        return Table(path, format, encoding, delimiter, len(cells), (), 0, _even(path, sample))
    if len(sample) == 1:
        raise DataError("holds a header and no rows", path=path)
    return Table(path, format, encoding, delimiter, len(cells), cells, line, _even(path, sample)[1:])


def is_table(path: Path, rows: Sequence[str]) -> bool:
    """Whether a file with these first rows is a table: by its name, by tabs or objects in each row, by a header."""
    filled = [row for row in rows if row.strip()]
    if suffix(path) in TABLES or not filled:
        return suffix(path) in TABLES
    return all("\t" in row.strip() for row in filled) or _format(path, filled[0]) != "tsv"


def is_language(name: str) -> bool:
    """Whether a column or a file ending names a language: `en`, `pt-br`, `Spanish`."""
    return re.split(r"[-_]", name.strip().casefold())[0] in LANGUAGES


def are_classes(values: Sequence[str]) -> bool:
    """Whether values look like classes: short, and few different ones among many.

    >>> are_classes(["pos", "neg", "pos", "pos"]), are_classes(["a dog", "a cat", "a bird", "a dog"])
    (True, False)
    """
    different = len(set(values))
    allowed = max(len(values) / 10, min(len(values) / 2, 10))
    return 1 <= different <= allowed and all(0 < len(value) <= 40 for value in values)


def printable(name: str) -> str:
    """A name from a file, safe and short enough for a sentence."""
    name = "".join(mark if mark.isprintable() else "�" for mark in name)
    return name if len(name) <= 30 else f"{name[:29]}…"


def _format(path: Path, first: str) -> Format:
    """How the rows are written: by the file's name, else by its first row."""
    ending = suffix(path)
    if ending in (".jsonl", ".ndjson", ".json") or (ending not in TABLES and first.lstrip().startswith("{")):
        return "jsonl"
    cells = [cell.strip().casefold() for cell in first.split(",")]
    header = "\t" not in first and len(cells) > 1 and COLUMNS.issuperset(cells)
    return "csv" if ending == ".csv" or (ending not in TABLES and header) else "tsv"


def _sample(rows: Iterator[Row]) -> list[Row]:
    kept: list[Row] = []
    budget = _BUDGET
    for line, cells in islice(rows, SAMPLE):
        kept.append((line, cells))
        budget -= sum(len(cell or "") for cell in cells)
        if budget < 0:
            break
    return kept


def _even(path: Path, sample: list[Row]) -> tuple[Row, ...]:
    width = len(sample[0][1])
    for line, cells in sample:
        if len(cells) != width:
            raise _uneven(path, line, len(cells), width)
    return tuple(sample)


def _rows(numbered: Iterable[Line], path: Path, format: Format, delimiter: str, keys: tuple[str, ...]) -> Iterator[Row]:
    if format == "jsonl":
        for line, values in _objects(numbered, path):
            yield line, [_json_text(values.get(key), path, line) for key in keys]
    elif format == "csv":
        yield from _csv_rows(numbered, path, delimiter)
    else:
        for number, text in numbered:
            if text.strip():
                yield number, text.split("\t")


def _csv_rows(numbered: Iterable[Line], path: Path, delimiter: str) -> Iterator[Row]:
    """Rows of quoted cells, which may run over several lines; the line of a row is where it begins."""
    reader = csv.reader((f"{line}\n" for _, line in numbered), delimiter=delimiter, strict=True)
    while True:
        begins = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as problem:
            advice = "a quote inside a quoted cell is written twice, and each quote is closed"
            raise DataError(f"is not valid CSV ({problem}): {advice}", path=path, line=begins) from None
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield begins, cells


def _objects(numbered: Iterable[Line], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """One JSON object for each line; `{"translation": {...}}` is unwrapped."""
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError("is not valid JSON; each line must be one object {…}", path=path, line=number) from None
        if not isinstance(value, dict):
            raise DataError("is not a JSON object; each line must be one object {…}", path=path, line=number)
        inner = value.get("translation")
        yield number, inner if isinstance(inner, dict) else value


def _keys(numbered: Iterable[Line], path: Path) -> tuple[str, ...]:
    """The keys of the first objects, in the order in which they appear."""
    keys: dict[str, None] = {}
    for _, values in islice(_objects(numbered, path), SAMPLE):
        keys.update(dict.fromkeys(values))
    return tuple(keys)


def _json_text(value: Any, path: Path, line: int) -> str | None:
    """A JSON value as text; None if it is neither text nor a number."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        return None
    if _HALF_PAIR.search(value):
        raise DataError("holds half of a surrogate pair (\\ud8…), which is not a character", path=path, line=line)
    return value


def _is_header(first: Sequence[str], others: Sequence[Cells], wanted: Sequence[str]) -> bool:
    """Whether the first row names the columns: by names that the user gave, by known words, or above numbers."""
    cells = [cell.strip().casefold() for cell in first]
    if any(name.casefold() in cells for name in wanted if not name.isdecimal()):
        return True
    if len(set(cells)) < len(cells) or not all(0 < len(cell) <= 40 for cell in cells):
        return False
    if len(cells) > 1 and all(cell in COLUMNS or is_language(cell) for cell in cells):
        return True
    even = [other for other in others if len(other) == len(cells)]
    below = [{(other[index] or "").strip() for other in even} for index in range(len(cells))]
    if any(cell in COLUMNS and first[index].strip() not in below[index] for index, cell in enumerate(cells)):
        return True
    return len(even) > 1 and any(_is_above_numbers(cell, below[index]) for index, cell in enumerate(cells))


def _is_above_numbers(cell: str, below: set[str]) -> bool:
    return not _is_number(cell) and all(map(_is_number, below))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _present(table: Table, line: int, cells: Cells, index: int) -> str:
    cell = cells[index]
    if cell is None:
        raise DataError(f"has no text in column {printable(table.name(index))}", path=table.path, line=line)
    return cell


def _uneven(path: Path, line: int, width: int, expected: int) -> DataError:
    columns = f"{width} column{'s' * (width != 1)}"
    message = f"has {columns} where the rows before it have {expected}; each row needs the same columns"
    return DataError(message, path=path, line=line)
