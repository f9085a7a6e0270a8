"""Labelled text: a table with a label and a text column in either order, or lines that begin with their label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from clearhead.data import names
from clearhead.data.columns import Table, has_columns, inspect, is_few, shown
from clearhead.data.examples import Labelled
from clearhead.data.files import Reading, head, lines
from clearhead.data.folders import parts_of
from clearhead.data.splits import Parts
from clearhead.errors import DataError

_LABEL = re.compile(r"\d+|[\w+-]+(:[\w+-]+)?")
_FASTTEXT = "__label__"


def read(path: Path, reading: Reading) -> Parts[Labelled]:
    """All labelled texts of a file, or of a folder's parts."""
    parts = parts_of(path)
    start = [line for _, line in head(parts.train[0], reading.encoding)]
    first = inspect(parts.train[0], reading) if has_columns(parts.train[0], start) else None
    held_out = None if parts.validation is None else _from_files(parts.validation, first, reading)
    return Parts(_from_files(parts.train, first, reading), held_out)


def label_column(table: Table) -> int | None:
    """The column with the classes: by its name, else the one with the fewest different values, if they are few."""
    by_name = table.named(names.LABEL)
    if by_name is not None or table.width < 2:
        return by_name
    candidates = [place for place in range(table.width) if is_few(table.values(place))]
    return min(candidates, key=lambda place: len(set(table.values(place))), default=None)


def columns(table: Table, reading: Reading) -> tuple[int, int]:
    """The places of the text and the label: as the user says, else by name, else by what is in them."""
    text = table.column(reading.source) if reading.source else None
    label = table.column(reading.target) if reading.target else label_column(table)
    if label is None and text is not None and table.width == 2:
        label = 1 - text
    if label is None or table.width < 2:
        some = ", ".join(shown(table.called(place)) for place in range(min(table.width, 12)))
        advice = "choose the text with --source and the label with --target (data.source=… data.target=…)"
        raise DataError(f"has no column that looks like labels (columns: {some}); {advice}", path=table.path)
    if text is None:
        text = _text_column(table, label)
    if text == label:
        raise DataError(f"has text and label in one column, {shown(table.called(text))}", path=table.path)
    return text, label


def begins_with_label(rows: Sequence[str]) -> bool:
    """Whether lines are `label text`: each first word a label, and few different ones."""
    words = [row.split(None, 1) for row in rows if row.strip()]
    if not words or any(len(word) < 2 or not _LABEL.fullmatch(word[0]) for word in words):
        return False
    return len({word[0] for word in words}) > 1 and is_few([word[0] for word in words])


def _text_column(table: Table, label: int) -> int:
    """By its name, else the column with the longest texts that is not the label."""
    by_name = table.named(names.TEXT | names.SOURCE)
    if by_name is not None and by_name != label:
        return by_name
    others = [place for place in range(table.width) if place != label]
    return max(others, key=lambda place: sum(map(len, table.values(place))))


def _from_files(files: Sequence[Path], first: Table | None, reading: Reading) -> list[Labelled]:
    """The examples of one part; `first` is the table at the head of the training part, if the files are tables."""
    if first is None:
        return [example for file in files for example in _label_lines(file, reading)]
    examples = []
    for file in files:
        table = first if file == first.path else inspect(file, reading)
        text, label = _same_columns(table, first, reading)
        examples += [Labelled(words, name.strip(), line) for line, (words, name) in table.texts(text, label)]
    return examples


def _same_columns(table: Table, first: Table, reading: Reading) -> tuple[int, int]:
    """Where a file without the first one's header has its columns: at the same places."""
    wanted = [name for name in (reading.source, reading.target) if name]
    by_name = table.names and all(name in table.names for name in wanted)
    return columns(table if by_name or table.width != first.width else first, reading)


def _label_lines(path: Path, reading: Reading) -> Iterator[Labelled]:
    for number, line in lines(path, reading.encoding):
        if not line.strip():
            continue
        label, _, text = line.strip().partition(" ")
        if not text.strip():
            raise DataError("has one word where a label and a text are expected", path=path, line=number)
        yield Labelled(text.strip(), label.removeprefix(_FASTTEXT), number)
