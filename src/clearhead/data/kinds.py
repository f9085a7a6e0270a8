"""What does this path hold? A guess from names and the first rows, with its reason; the user may know better."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clearhead.config import DataKind
from clearhead.data import captions, images, labelled, names, pairs, plain, tagged
from clearhead.data.columns import Table, has_columns, is_few, shown
from clearhead.data.files import Reading, existing, files_in, head
from clearhead.data.folders import data_files, parts_of
from clearhead.data.splits import own_parts
from clearhead.errors import DataError


@dataclass(frozen=True, slots=True)
class Found:
    """A kind of data, and what in it says so."""

    kind: DataKind
    reason: str


def detect(path: str | Path, reading: Reading | None = None) -> Found:
    """Look at a path and say what it holds."""
    reading = reading or Reading()
    if pairs.two_files(path):
        return Found("pairs", "two files whose lines belong together")
    path = existing(path)
    return _of_folder(path, reading) if path.is_dir() else _of_file(path, reading)


def _of_folder(folder: Path, reading: Reading) -> Found:
    if found := pairs.aligned_files(folder, reading):
        languages = sorted({language for files in found.values() for language in files})
        return Found("pairs", f"files named after the languages {', '.join(languages)}")
    if any(map(captions.is_captions_file, files_in(folder))):
        return Found("captions", f"a table of captions, {captions.captions_file(folder).name}")
    if arrays := images.array_files(folder):
        return Found("images", f"pictures as arrays, {arrays[0].name}")
    classes = images.class_folders(folder).train
    if any(next(images.pictures_in(inner), None) for inner in classes):
        return Found("images", f"pictures in one folder for each of {len(classes)} classes")
    if not classes and next(images.pictures_in(folder), None):
        raise images.no_classes(folder)
    return _of_rows(folder, reading)


def _of_rows(folder: Path, reading: Reading) -> Found:
    """A folder of text: several .txt files are books, one file or a train part is looked into."""
    files = data_files(folder)
    texts = [file for file in files if plain.is_text_file(file)]
    train = own_parts(files).train
    if len(texts) > 1 and texts == files and names.part(train[0]) != "train":
        return Found("text", f"a folder of {len(texts)} text files")
    first = parts_of(folder).train[0]
    found = _of_file(first, reading)
    return Found(found.kind, f"{first.name} has {found.reason}")


def _of_file(path: Path, reading: Reading) -> Found:
    if images.is_array_file(path):
        return Found("images", "pictures as arrays")
    if path.suffix.lower() in names.PICTURES:
        raise DataError("is one picture; give the folder of a dataset", path=path)
    rows = head(path, reading.encoding)
    if not any(line.strip() for _, line in rows):
        raise DataError("is empty", path=path)
    if names.suffix(path) in names.TAGGED or tagged.looks_tagged(rows):
        return Found("tagged", "words in columns with a blank line after each sentence")
    if has_columns(path, [line for _, line in rows]):
        return _of_table(pairs.inspect_pairs(path, reading), reading)
    if labelled.begins_with_label([line for _, line in rows]):
        return Found("labelled", "lines that begin with one of a few labels")
    return Found("text", "running text")


def _of_table(table: Table, reading: Reading) -> Found:
    if captions.names_images(table):
        return Found("captions", "a column of image names beside one of sentences")
    if places := pairs.named_sides(table):
        named = "columns named" if table.header or table.form == "jsonl" else "a file named after"
        return Found("pairs", f"{named} {', '.join(shown(table.names[place]) for place in places)}")
    if pairs.has_attribution(table):
        return Found("pairs", "two columns of sentences and one that says where they are from")
    label = table.column(reading.target) if reading.target else labelled.label_column(table)
    if label is not None and label == table.named(names.LABEL):
        return Found("labelled", f"a column named {shown(table.names[label])}")
    if label is not None and is_few(values := table.values(label)):
        count = f"{len(set(values))} different values in {len(values):,} rows"
        return Found("labelled", f"a column, {shown(table.called(label))}, with {count}")
    if table.width < 2:
        raise DataError("has one column; pairs and labelled texts need two, plain text a .txt file", path=table.path)
    return Found("pairs", "two text columns that both vary" if table.width == 2 else "several text columns that vary")
