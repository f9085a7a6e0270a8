"""Labelled text: a table with a label and a text column in either order, lines that begin with their label, or a folder
of text files for each label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from clearhead.data import lint
from clearhead.data.examples import Labelled, Parts, folded
from clearhead.data.files import TABLES, blocks, files_in, lines
from clearhead.data.readers import READERS, Certainty, Detected, Reader, data_files, find_parts
from clearhead.data.readers.images import class_folders
from clearhead.data.readers.text import TextInMemory, is_text_file
from clearhead.data.source import ReadOptions, Source
from clearhead.data.tables import LABEL, SOURCE, TEXT, Table, are_classes, printable
from clearhead.errors import DataError

_LABEL = re.compile(r"\d+|[\w+-]+(:[\w+-]+)?")
_FASTTEXT = "__label__"


@READERS.register("labelled")
class LabelledReader(Reader):
    """Reads texts with one label each."""

    example_kind, title, unit, task = "labelled", "labelled texts", "texts", "classify"
    suffixes = TABLES

    def can_read(self, source: Source) -> Detected | None:
        if source.is_folder:
            classes = text_folders(source.path).train
            few = f"text files in one folder for each of {len(classes)} labels"
            return Detected(few, Certainty.NAMED) if classes else None
        if not source.is_file:
            return None
        if not source.is_table():
            is_labelled = begins_with_label([line for _, line in source.head()])
            return Detected("lines that begin with one of a few labels") if is_labelled else None
        table = source.table()
        label = table.column(source.options.target) if source.options.target else label_column(table)
        if label is None:
            return None
        if label == table.find(LABEL):
            return Detected(f"a column named {printable(table.names[label])}")
        if are_classes(values := table.values(label)):
            count = f"{len(set(values))} different values in {len(values):,} rows"
            return Detected(f"a column, {printable(table.name(label))}, with {count}")
        return None

    def read(self, source: Source) -> Parts[list[Labelled]]:
        if source.is_folder and (folders := text_folders(source.path)).train:
            held_out = None if folders.validation is None else _from_folders(folders.validation, source)
            return Parts(_from_folders(folders.train, source), held_out)
        parts = find_parts(source.path)
        first = source.table(parts.train[0]) if source.is_table(parts.train[0]) else None
        train = _read_files(source, parts.train, first)
        return Parts(train, None if parts.validation is None else _read_files(source, parts.validation, first))

    def columns(self, source: Source) -> str:
        if source.is_folder and (folders := text_folders(source.path).train):
            names = [printable(folder.name) for folder in folders]
            return f"the label is the folder of a file: {', '.join(names[:8])}{', …' * (len(names) > 8)}"
        file = find_parts(source.path).train[0]
        if not source.is_table(file):
            return ""
        table = source.table(file)
        text, label = text_and_label(table, source.options)
        return f"the text is column {table.name(text)}, the label column {table.name(label)}{table.unused(text, label)}"

    def identity(self, example: Labelled) -> bytes:
        return folded(example.text)

    def running_text(self, source: Source) -> Parts[TextInMemory]:
        """The texts without their labels, each on one line."""
        train, held_out = self.read(source)
        return Parts(_lines_of_text(train), None if held_out is None else _lines_of_text(held_out))

    def texts(self, example: Labelled) -> Mapping[str, Sequence[str]]:
        return {"text": (example.text,)}

    def row(self, key: bytes, example: Labelled) -> tuple[str, str]:
        return example.text, example.label

    def answer(self, example: Labelled) -> str:
        return example.label

    def classes(self, example: Labelled) -> tuple[str, ...]:
        return (example.label,)

    def problems(self, example: Labelled) -> Iterator[str]:
        yield from lint.text_problems(example.text)
        if not example.label:
            yield "no label"


def text_folders(path: Path) -> Parts[list[Path]]:
    """The folders with the text files of one label each, under `train/` and `test/` if these exist; else none."""
    if data_files(path):
        return Parts([], None)
    found = class_folders(path)
    if len(found.train) < 2 or not all(any(map(is_text_file, files_in(folder))) for folder in found.train):
        return Parts([], None)
    return found


def _from_folders(folders: Sequence[Path], source: Source) -> list[Labelled]:
    return [
        Labelled("".join(blocks(file, source.options.encoding)).strip(), folder.name)
        for folder in folders
        for file in files_in(folder)
        if is_text_file(file)
    ]


def label_column(table: Table) -> int | None:
    """The column with the classes: by its name, else the one with the fewest different values, if they are few."""
    by_name = table.find(LABEL)
    if by_name is not None or table.width < 2:
        return by_name
    candidates = [index for index in range(table.width) if are_classes(table.values(index))]
    different = {index: len(set(table.values(index))) for index in candidates}
    several = {index: count for index, count in different.items() if count > 1}  # a file may be sorted by its label
    return min(several or different, key=different.__getitem__, default=None)


def text_and_label(table: Table, options: ReadOptions) -> tuple[int, int]:
    """The columns of the text and the label: as the user chose, else by name, else by their values."""
    text = table.column(options.source) if options.source else None
    label = table.column(options.target) if options.target else label_column(table)
    if label is None and text is not None and table.width == 2:
        label = 1 - text
    if table.width < 2:
        raise DataError(f"has one column, {table.listed_names()}; a text and its label need two", path=table.path)
    if label is None:
        message = f"has no column that looks like labels (columns: {table.listed_names()})"
        advice = "choose the text with --source and the label with --target (data.source=… data.target=…)"
        raise DataError(f"{message}; {advice}", path=table.path)
    if text is None:
        text = _text_column(table, label)
    if text == label:
        raise DataError(f"has text and label in one column, {printable(table.name(text))}", path=table.path)
    return text, label


def begins_with_label(rows: Sequence[str]) -> bool:
    """Whether lines are `label text`: each first word a label, and few different ones."""
    words = [row.split(None, 1) for row in rows if row.strip()]
    if not words or any(len(word) < 2 or not _LABEL.fullmatch(word[0]) for word in words):
        return False
    return len({word[0] for word in words}) > 1 and are_classes([word[0] for word in words])


def _text_column(table: Table, label: int) -> int:
    """Of the columns that are named like texts, or else of all but the label, the one with the longest texts."""
    others = [index for index in range(table.width) if index != label]
    named = [index for index in others if table.names and table.names[index].casefold() in TEXT | SOURCE]
    return max(named or others, key=lambda index: sum(map(len, table.values(index))))


def _read_files(source: Source, files: Sequence[Path], first: Table | None) -> list[Labelled]:
    """The examples of one part; `first` is the table of the first training file, None if the files are lines."""
    if first is None:
        return [example for file in files for example in _label_lines(file, source.options.encoding)]
    examples = []
    for file in files:
        table = source.table(file)
        text, label = _same_columns(table, first, source.options)
        examples += [Labelled(words, name.strip(), line) for line, (words, name) in table.rows(text, label)]
    return examples


def _same_columns(table: Table, first: Table, options: ReadOptions) -> tuple[int, int]:
    """The columns of a file; without the names that the first one has, they are where the first one has them."""
    given = [name for name in (options.source, options.target) if name]
    by_name = table.names and all(name in table.names for name in given)
    return text_and_label(table if by_name or table.width != first.width else first, options)


def _label_lines(path: Path, encoding: str) -> Iterator[Labelled]:
    for number, line in lines(path, encoding):
        if not line.strip():
            continue
        label, _, text = line.strip().partition(" ")
        if not text.strip():
            raise DataError("has one word where a label and a text are expected", path=path, line=number)
        if text.startswith(_FASTTEXT):
            raise DataError("has several labels, and a text can have one", path=path, line=number)
        yield Labelled(text.strip(), label.removeprefix(_FASTTEXT), number)


def _lines_of_text(examples: Sequence[Labelled]) -> TextInMemory:
    return TextInMemory(" ".join(example.text.splitlines()) + "\n" for example in examples)
