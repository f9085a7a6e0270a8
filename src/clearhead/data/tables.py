"""Tables: rows of named or numbered columns from TSV, CSV, JSON Lines and JSON.

`inspect` looks at the first rows of a file for its format and header; `Table.rows` then streams chosen columns of all
of them. In TSV a tab always separates, unless cells are quoted as Excel does. Each row must have as many columns as the
first. A JSON document is a list of objects, or an object with a list for each column; its items count as lines.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from clearhead.data.files import TABLES, Line, Preview, blocks, lines, suffix
from clearhead.errors import DataError, nearest

SAMPLE = 1000  # rows examined to decide what the columns are
_BUDGET = 4 << 20  # characters in a sample
_MARKS = ",;\t|"  # that separate the cells of a CSV file
_NAME = re.compile(r"[^\W\d][\w-]*( [\w-]+)?")  # what a column may be called: one or two words
_LONG = 4  # words: a column with texts of so many is not named in its own first row
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
Format = Literal["tsv", "csv", "jsonl", "json"]


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
        """The name of a column, or its number where it has none."""
        return (self.names and self.names[index]) or str(index + 1)

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
        whole = self.format == "json"
        items = enumerate(read_document(self.path, self.encoding), 1) if whole else lines(self.path, self.encoding)
        rows = _rows(items, self.path, self.format, self.delimiter, self.names)
        for line, cells in rows:
            if line == self.header:
                continue
            if len(cells) != self.width:
                raise _uneven(self.path, line, len(cells), self.width, self.delimiter)
            yield line, [_present(self, line, cells, index) for index in indices]


def inspect(preview: Preview, wanted: Iterable[str | None] = ()) -> Table:
    """Find format, width and header from the first rows; `wanted` are column names that the user gave."""
    path, encoding = preview.path, preview.encoding
    first = next((line for _, line in preview.head() if line.strip()), "")
    format = _format(path, first)
    delimiter = "\t" if format == "tsv" else _delimiter(preview, first)
    if format == "tsv" and _is_quoted(preview):
        format = "csv"
    if preview.too_long is not None and format != "json":
        raise preview.too_long
    items = list(enumerate(read_document(path, encoding), 1)) if format == "json" else preview
    keys = _keys(items, path, format) if format in ("jsonl", "json") else ()
    sample = _sample(_rows(items, path, format, delimiter, keys))
    if not sample:
        raise DataError("is empty", path=path)
    line, first_row = sample[0]
    if format in ("jsonl", "json"):
        return Table(path, format, encoding, delimiter, len(keys), keys, 0, tuple(sample))
    cells = tuple(cell or "" for cell in first_row)
    if not _is_header(cells, [cells for _, cells in sample[1:]], [name for name in wanted if name]):
        return Table(path, format, encoding, delimiter, len(cells), (), 0, _even(path, sample, delimiter))
    if len(sample) == 1:
        raise DataError("holds a header and no rows", path=path)
    return Table(path, format, encoding, delimiter, len(cells), cells, line, _even(path, sample, delimiter)[1:])


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


def are_numbers(values: Iterable[str]) -> bool:
    """Whether all values are numbers."""
    return all(map(_is_number, values))


def printable(name: str) -> str:
    """A name from a file, safe and short enough for a sentence."""
    name = "".join(mark if mark.isprintable() else "�" for mark in name)
    return name if len(name) <= 30 else f"{name[:29]}…"


def _format(path: Path, first: str) -> Format:
    """How the rows are written: by the file's name, else by its first row."""
    ending = suffix(path)
    if ending in (".jsonl", ".ndjson", ".json") or (ending not in TABLES and first.lstrip().startswith("{")):
        return "json" if _is_document(path, first) else "jsonl"
    cells = [cell.strip().casefold() for cell in first.split(",")]
    header = "\t" not in first and len(cells) > 1 and COLUMNS.issuperset(cells)
    return "csv" if ending == ".csv" or (ending not in TABLES and header) else "tsv"


def _is_document(path: Path, first: str) -> bool:
    """Whether a JSON file is one value and not an object on each line, by its first line."""
    if first.lstrip().startswith("["):
        return True
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return suffix(path) == ".json"  # the value goes on in the next line
    if not isinstance(value, dict):
        return False
    columns = [list(each) for each in value.values() if isinstance(each, dict)]  # as pandas writes them
    is_columns = len(columns) == len(value) > 1 and all(names == columns[0] for names in columns)
    return is_columns or any(isinstance(each, list) and _are_objects(each) for each in value.values())


def _are_objects(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(each, dict) for each in values)


def _delimiter(preview: Preview, first: str) -> str:
    """What separates the cells of a CSV file: the mark that makes rows of one width, rather not before a space."""
    found = [mark for mark in _MARKS if mark in first]
    texts = [line for _, line in preview.head(50)]
    even = [mark for mark in found if len(set(_widths(texts, mark))) == 1] if len(found) > 1 else []

    def as_punctuation(mark: str) -> float:
        return sum(text.count(f"{mark} ") for text in texts) / sum(text.count(mark) for text in texts)

    return min(even, key=as_punctuation) if even else (*found, ",")[0]


def _widths(texts: Sequence[str], delimiter: str) -> list[int]:
    """The number of cells of each row that is valid CSV, up to the first that is not."""
    widths = []
    with suppress(csv.Error):  # perhaps a cell that goes on after these lines
        for cells in csv.reader((f"{text}\n" for text in texts), delimiter=delimiter, strict=True):
            widths.append(len(cells))  # those before an error stay
    return [width for width in widths if width]


def _is_quoted(preview: Preview) -> bool:
    """Whether a TSV file is quoted like CSV: a column is in quotes, or quotes inside quotes are written twice."""
    texts = [line for _, line in preview.head(200) if line.strip()]
    rows = [text.split("\t") for text in texts]
    begun = [cell for cells in rows for cell in cells if cell.startswith('"')]
    if not begun:
        return False
    if len({len(cells) for cells in rows}) > 1:  # a quoted cell may run over several lines
        widths = _widths(texts, "\t")
        return len(set(widths)) == 1 and widths[0] > 1
    columns = zip(*rows[1:], strict=True)
    whole = len(rows) > 3 and any(all(map(_is_quoted_cell, column)) for column in columns)
    return whole or (all(map(_is_quoted_cell, begun)) and any('""' in cell[1:-1] for cell in begun))


def _is_quoted_cell(cell: str) -> bool:
    return len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def _sample(rows: Iterator[Row]) -> list[Row]:
    kept: list[Row] = []
    budget = _BUDGET
    for line, cells in islice(rows, SAMPLE):
        kept.append((line, cells))
        budget -= sum(len(cell or "") for cell in cells)
        if budget < 0:
            break
    return kept


def _even(path: Path, sample: list[Row], delimiter: str) -> tuple[Row, ...]:
    width = len(sample[0][1])
    for line, cells in sample:
        if len(cells) != width:
            raise _uneven(path, line, len(cells), width, delimiter)
    return tuple(sample)


def _rows(
    numbered: Iterable[tuple[int, Any]], path: Path, format: Format, delimiter: str, keys: tuple[str, ...]
) -> Iterator[Row]:
    """The rows of lines, or of the items of a JSON document."""
    if format in ("jsonl", "json"):
        for line, values in _objects(numbered, path, format):
            yield line, [_json_text(values[key], path, line) if key in values else None for key in keys]
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


def objects(preview: Preview) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of a JSON file, whether it has one on each line or is one document; values as they are."""
    first = next((line for _, line in preview.head() if line.strip()), "")
    if not first.lstrip().startswith(("{", "[")):
        return
    format: Format = "json" if _is_document(preview.path, first) else "jsonl"
    items = enumerate(read_document(preview.path, preview.encoding), 1) if format == "json" else preview
    yield from _objects(items, preview.path, format)


def _objects(numbered: Iterable[tuple[int, Any]], path: Path, format: Format) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of each line, or of the document; `{"translation": {...}}` is unwrapped."""
    for number, value in numbered if format == "json" else _values(numbered, path):
        if not isinstance(value, dict):
            raise DataError("is not a JSON object {…}", path=path, line=number)
        inner = value.get("translation")
        yield number, inner if isinstance(inner, dict) else value


def _values(numbered: Iterable[Line], path: Path) -> Iterator[tuple[int, Any]]:
    """The JSON value of each line."""
    for number, line in numbered:
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                raise DataError("is not valid JSON; each line must be one object {…}", path=path, line=number) from None


def read_document(path: Path, encoding: str = "utf-8") -> list[Any]:
    """The items of a JSON file that is one value: a list, an object around a list of objects, or one of columns."""
    value = read_json(path, encoding)
    if isinstance(value, list):
        return value
    lists = [each for each in value.values() if isinstance(each, list) and _are_objects(each)]
    if len(lists) == 1:
        return lists[0]
    columns = [list(each.values()) if isinstance(each, dict) else each for each in value.values()]
    if columns and all(isinstance(each, list) and len(each) == len(columns[0]) > 0 for each in columns):
        return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    message = f"is one JSON object ({', '.join(map(printable, list(value)[:8]))})"
    raise DataError(f"{message}; a list of objects, or one object on each line, is expected", path=path)


def read_json(path: Path, encoding: str = "utf-8") -> Any:
    """The list or object that a file is."""
    try:
        value = json.loads("".join(blocks(path, encoding)))
    except json.JSONDecodeError as problem:
        raise DataError(f"is not valid JSON ({problem.msg})", path=path, line=problem.lineno) from None
    except RecursionError:
        raise DataError("is not valid JSON: it is nested too deeply", path=path, line=1) from None
    if not isinstance(value, list | dict):
        raise DataError("is a single JSON value; a list of objects is expected", path=path)
    return value


def _keys(numbered: Iterable[tuple[int, Any]], path: Path, format: Format) -> tuple[str, ...]:
    """The keys of the first objects, in the order in which they appear."""
    keys: dict[str, None] = {}
    for _, values in islice(_objects(numbered, path, format), SAMPLE):
        keys.update(dict.fromkeys(values))
    return tuple(keys)


def _json_text(value: Any, path: Path, line: int) -> str | None:
    """A JSON value as text, a missing one as none; None if it is neither text nor a number."""
    if value is None or value != value:  # null, and what pandas writes for it: NaN
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        return None
    if _HALF_PAIR.search(value):
        raise DataError("holds half of a surrogate pair (\\ud8…), which is not a character", path=path, line=line)
    return value


def _is_header(first: Sequence[str], others: Sequence[Cells], wanted: Sequence[str]) -> bool:
    """Whether the first row names the columns: by names that the user gave, by known words, above numbers or texts."""
    cells = [cell.strip().casefold() for cell in first]
    if any(name.casefold() in cells for name in wanted if not name.isdecimal()):
        return True
    named = cells[1:] if cells[0] == "" and len(cells) > 2 else cells  # pandas gives the numbers of rows no name
    if len(set(named)) < len(named) or not all(0 < len(cell) <= 40 for cell in named):
        return False
    if len(cells) > 1 and all(cell in COLUMNS or is_language(cell) for cell in cells):
        return True
    even = [other for other in others if len(other) == len(cells)]
    below = [{(other[index] or "").strip() for other in even} for index in range(len(cells))]
    if any(cell in COLUMNS and first[index].strip() not in below[index] for index, cell in enumerate(cells)):
        return True
    if len(even) > 1 and any(_is_above_numbers(cell, below[index]) for index, cell in enumerate(cells) if cell):
        return True
    is_new = all(first[index].strip() not in values for index, values in enumerate(below))
    return is_new and len(even) > 1 and all(map(_NAME.fullmatch, named)) and any(map(_are_texts, below))


def _are_texts(values: set[str]) -> bool:
    """Whether half of the values have several words."""
    return 2 * sum(len(value.split()) >= _LONG for value in values) > len(values)


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


def _uneven(path: Path, line: int, width: int, expected: int, delimiter: str) -> DataError:
    columns = f"{width} column{'s' * (width != 1)}"
    message = f"has {columns} where the rows before it have {expected}; each row needs the same columns"
    quotes = f', and a cell with a {delimiter} stands in "quotes"' if width > expected and delimiter != "\t" else ""
    return DataError(message + quotes, path=path, line=line)
