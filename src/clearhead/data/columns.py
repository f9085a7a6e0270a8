"""Tables: rows of named or numbered columns from TSV, CSV and JSON Lines, whoever reads them.

`inspect` opens a table and looks at its first rows for a header; `texts` then streams the columns asked for.
TSV has no quoting: a tab always separates. Every row must have as many columns as the first.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from clearhead.data import names
from clearhead.data.files import Reading, lines
from clearhead.errors import DataError, nearest

SAMPLE = 1000  # rows looked at before deciding what the columns are
_BUDGET = 4 << 20  # characters that a sample may have
_HALF_PAIR = re.compile("[\ud800-\udfff]")

Cells = Sequence[str | None]  # None: a JSON row that lacks the column, or has no text in it
Row = tuple[int, Cells]  # line, cells
Form = Literal["tsv", "csv", "jsonl"]


@dataclass(frozen=True)
class Table:
    """A file of rows: where it is, what its columns are called (if they are) and its first rows."""

    path: Path
    form: Form
    encoding: str
    width: int
    names: tuple[str, ...]  # empty without a header
    header: int  # the line of the header, 0 without one
    sample: tuple[Row, ...]

    def column(self, wanted: str) -> int:
        """The place of a column given by its name, or by its number (the first is 1)."""
        for fold in (str, str.casefold):
            folded = [fold(name) for name in self.names]
            if fold(wanted) in folded:
                return folded.index(fold(wanted))
        if wanted.isdecimal() and 1 <= int(wanted) <= self.width:
            return int(wanted) - 1
        if self.names:
            raise DataError(f"has no column {wanted}; {nearest(wanted, map(shown, self.names))}", path=self.path)
        raise DataError(f"has no header and no column {wanted}; choose from 1 to {self.width}", path=self.path)

    def called(self, place: int) -> str:
        """How to ask for the column at a place: by its name, else by its number."""
        return self.names[place] if self.names else str(place + 1)

    def named(self, known: frozenset[str]) -> int | None:
        """The first column whose name is among the known ones."""
        return next((place for place, name in enumerate(self.names) if name.strip().casefold() in known), None)

    def values(self, place: int) -> list[str]:
        """What the first rows have in one column."""
        return [cells[place] or "" for _, cells in self.sample]

    def texts(self, *places: int) -> Iterator[tuple[int, list[str]]]:
        """(line, texts) of every row in the columns asked for."""
        for line, cells in _rows(self.path, self.form, self.encoding, self.names):
            if line == self.header:
                continue
            if len(cells) != self.width:
                raise _uneven(self.path, line, len(cells), self.width)
            yield line, [_present(self, line, cells, place) for place in places]


def inspect(path: Path, reading: Reading) -> Table:
    """Look at the first rows of a table: its form, its width, and whether it has a header."""
    form = _form(path, next((line for _, line in lines(path, reading.encoding)), ""))
    keys = _keys(path, reading.encoding) if form == "jsonl" else ()
    sample = _sample(_rows(path, form, reading.encoding, keys))
    if not sample:
        raise DataError("is empty", path=path)
    line, first = sample[0]
    if form == "jsonl":
        return Table(path, form, reading.encoding, len(keys), keys, 0, tuple(sample))
    wanted = [name for name in (reading.source, reading.target) if name]
    if not _is_header([cell or "" for cell in first], [cells for _, cells in sample[1:]], wanted):
        return Table(path, form, reading.encoding, len(first), (), 0, _even(path, sample))
    if len(sample) == 1:
        raise DataError("holds a header and no rows", path=path)
    header = tuple(cell or "" for cell in first)
    return Table(path, form, reading.encoding, len(first), header, line, _even(path, sample)[1:])


def has_columns(path: Path, rows: Sequence[str]) -> bool:
    """Whether a file with these first rows is a table: by its name, by tabs or objects in each row, by a header."""
    filled = [row for row in rows if row.strip()]
    if names.suffix(path) in names.TABLES or not filled:
        return names.suffix(path) in names.TABLES
    return all("\t" in row.strip() for row in filled) or _form(path, filled[0]) != "tsv"


def _form(path: Path, first: str) -> Form:
    """How the rows are written: by the file's name, else by its first row."""
    ending = names.suffix(path)
    if ending in (".jsonl", ".ndjson", ".json") or (ending not in names.TABLES and first.lstrip().startswith("{")):
        return "jsonl"
    cells = [cell.strip().casefold() for cell in first.split(",")]
    header = "\t" not in first and len(cells) > 1 and names.COLUMNS.issuperset(cells)
    return "csv" if ending == ".csv" or (ending not in names.TABLES and header) else "tsv"


def is_few(values: Sequence[str]) -> bool:
    """Whether values look like classes: short, and few different ones among many.

    >>> is_few(["pos", "neg", "pos", "pos"]), is_few(["a dog", "a cat", "a bird", "a dog"])
    (True, False)
    """
    different = len(set(values))
    allowed = max(len(values) / 10, min(len(values) / 2, 10))
    return 1 <= different <= allowed and all(0 < len(value) <= 40 for value in values)


def shown(name: str) -> str:
    """A name from a file, made fit for a sentence: printable and short."""
    name = "".join(mark if mark.isprintable() else "�" for mark in name)
    return name if len(name) <= 30 else f"{name[:29]}…"


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


def _rows(path: Path, form: Form, encoding: str, keys: tuple[str, ...]) -> Iterator[Row]:
    if form == "jsonl":
        for line, values in _objects(path, encoding):
            yield line, [_json_text(values.get(key), path, line) for key in keys]
    else:
        read: Callable[[Path, str], Iterator[Row]] = _csv_rows if form == "csv" else _tsv_rows
        yield from read(path, encoding)


def _tsv_rows(path: Path, encoding: str) -> Iterator[Row]:
    for number, line in lines(path, encoding):
        if line.strip():
            yield number, line.split("\t")


def _csv_rows(path: Path, encoding: str) -> Iterator[Row]:
    """Rows of quoted cells, which may run over several lines; a row is where it begins."""
    first = next((line for _, line in lines(path, encoding)), "")
    mark = next((mark for mark in ",;\t" if mark in first), ",")
    reader = csv.reader((f"{line}\n" for _, line in lines(path, encoding)), delimiter=mark, strict=True)
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


def _objects(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """One JSON object for each line; `{"translation": {...}}` is unwrapped."""
    for number, line in lines(path, encoding):
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


def _keys(path: Path, encoding: str) -> tuple[str, ...]:
    """The keys of the first objects, in the order in which they appear."""
    keys: dict[str, None] = {}
    for _, values in islice(_objects(path, encoding), SAMPLE):
        keys.update(dict.fromkeys(values))
    return tuple(keys)


def _json_text(value: Any, path: Path, line: int) -> str | None:
    """A JSON value as text; None for what is no text at all."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        return None
    if _HALF_PAIR.search(value):
        raise DataError("holds half of a surrogate pair (\\ud8…), which is no character", path=path, line=line)
    return value


def _is_header(first: Sequence[str], others: Sequence[Cells], wanted: Sequence[str]) -> bool:
    """Whether the first row names the columns: by what the user asks for, by known words, or above numbers."""
    cells = [cell.strip().casefold() for cell in first]
    if any(name.casefold() in cells for name in wanted if not name.isdecimal()):
        return True
    if len(set(cells)) < len(cells) or not all(0 < len(cell) <= 40 for cell in cells):
        return False
    if len(cells) > 1 and all(cell in names.COLUMNS or names.is_language(cell) for cell in cells):
        return True
    even = [other for other in others if len(other) == len(cells)]
    below = [{(other[place] or "").strip() for other in even} for place in range(len(cells))]
    if any(cell in names.COLUMNS and first[place].strip() not in below[place] for place, cell in enumerate(cells)):
        return True
    return len(even) > 1 and any(_is_above_numbers(cell, below[place]) for place, cell in enumerate(cells))


def _is_above_numbers(cell: str, below: set[str]) -> bool:
    return not _is_number(cell) and all(map(_is_number, below))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _present(table: Table, line: int, cells: Cells, place: int) -> str:
    cell = cells[place]
    if cell is None:
        raise DataError(f"has no text in column {shown(table.called(place))}", path=table.path, line=line)
    return cell


def _uneven(path: Path, line: int, width: int, expected: int) -> DataError:
    columns = f"{width} column{'s' * (width != 1)}"
    message = f"has {columns} where the rows before it have {expected}; each row needs the same columns"
    return DataError(message, path=path, line=line)
