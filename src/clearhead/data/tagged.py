"""Tagged words in CoNLL columns: one word a line, its tag in another column, a blank line between sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from clearhead.data import names
from clearhead.data.examples import Tagged
from clearhead.data.files import Reading, head, lines
from clearhead.data.folders import parts_of
from clearhead.data.splits import Parts
from clearhead.errors import ConfigError, DataError, nearest

# The columns of Universal Dependencies' CoNLL-U, which begins its rows with a number instead of the word.
_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_NO_WORD = re.compile(r"\d+[-.]\d+\t")  # CoNLL-U rows that are no word of their own: 1-2 and 1.1

Line = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of one file are written."""

    separator: str | None  # a tab; None = any run of blanks
    width: int
    names: tuple[str, ...]  # of the columns; empty where nothing names them
    header: int  # its line, 0 without one

    def cells(self, line: str) -> list[str]:
        """A row cut into its columns."""
        return line.rstrip().split(self.separator)

    def is_note(self, number: int, line: str) -> bool:
        """Whether a row is no word: a header, a comment, the start of a document, or a CoNLL-U range."""
        comment = line.startswith("#") and (" = " in line or len(self.cells(line)) != self.width)
        range_ = self.names == _CONLLU and bool(_NO_WORD.match(line))
        return comment or range_ or number == self.header or line.startswith("-DOCSTART-")


def read(path: Path, reading: Reading) -> Parts[Tagged]:
    """All tagged sentences of a file, or of a folder's parts."""
    parts = parts_of(path)
    held_out = None if parts.validation is None else _from_files(parts.validation, reading)
    return Parts(_from_files(parts.train, reading), held_out)


def looks_tagged(rows: Sequence[Line]) -> bool:
    """Whether lines are columns in groups: blank lines between them, as many columns in each, tags that recur."""
    layout = layout_of(rows)
    if layout is None or layout.width < 2 or all(line.strip() for _, line in rows[:-1]):
        return False
    words = [layout.cells(line) for number, line in rows if line.strip() and not layout.is_note(number, line)]
    if any(len(cells) != layout.width or " " in cells[0] for cells in words):
        return False
    _, tag = columns(layout, Reading(), Path())
    return len({cells[tag] for cells in words}) < len(words)


def layout_of(rows: Sequence[Line]) -> Layout | None:
    """The layout of the first row that is a word or a header; None where there is no such row."""
    for number, line in rows:
        if line.strip() and not line.startswith(("#", "-DOCSTART-")):
            separator = "\t" if "\t" in line else None
            cells = line.rstrip().split(separator)
            if len(cells) == len(_CONLLU) and _is_conllu(line, cells):
                return Layout(separator, len(cells), _CONLLU, 0)
            if len(cells) > 1 and all(
                cell.casefold() in names.TOKEN | names.TAG | {"label", "lemma"} for cell in cells
            ):
                return Layout(separator, len(cells), tuple(cells), number)
            return Layout(separator, len(cells), (), 0)
    return None


def columns(layout: Layout, reading: Reading, path: Path) -> tuple[int, int]:
    """The places of the word and its tag: as the user says, else as CoNLL-U has them, else first and last."""
    usual = ("form", "upos") if layout.names == _CONLLU else ("1", str(layout.width))
    token = _place(reading.source or usual[0], layout, path)
    tag = _place(reading.target or usual[1], layout, path)
    if token == tag:
        raise ConfigError(f"{path}: the word and its tag are the same column")
    return token, tag


def _is_conllu(line: str, cells: Sequence[str]) -> bool:
    return cells[0].isdecimal() or bool(_NO_WORD.match(line))


def _place(wanted: str, layout: Layout, path: Path) -> int:
    """Where a column is, given by name or by number (the first is 1)."""
    if wanted in layout.names:
        return layout.names.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= layout.width:
        return int(wanted) - 1
    known = layout.names or [str(number + 1) for number in range(layout.width)]
    raise DataError(f"has no column {wanted}; {nearest(wanted, known)}", path=path)


def _from_files(files: Sequence[Path], reading: Reading) -> list[Tagged]:
    return [example for file in files for example in _from_file(file, reading)]


def _from_file(path: Path, reading: Reading) -> Iterator[Tagged]:
    layout = layout_of(head(path, reading.encoding))
    if layout is None:
        raise DataError("is empty", path=path)
    if layout.width < 2:
        raise DataError("has one column where a word and its tag are expected", path=path)
    token, tag = columns(layout, reading, path)
    found = False
    for sentence in _sentences(path, layout, reading.encoding):
        found = True
        words, tags = (tuple(cells[place] for _, cells in sentence) for place in (token, tag))
        yield Tagged(words, tags, sentence[0][0])
    if not found:
        raise DataError("holds a header and no rows", path=path)


def _sentences(path: Path, layout: Layout, encoding: str) -> Iterator[list[tuple[int, list[str]]]]:
    """Groups of (line, cells) between blank lines."""
    for blank, group in groupby(lines(path, encoding), key=lambda row: not row[1].strip()):
        words = (
            []
            if blank
            else [(number, layout.cells(line)) for number, line in group if not layout.is_note(number, line)]
        )
        for number, cells in words:
            if len(cells) != layout.width:
                message = f"has {len(cells)} columns where the rows before it have {layout.width}"
                raise DataError(f"{message}; a blank line ends a sentence", path=path, line=number)
        if words:
            yield words
