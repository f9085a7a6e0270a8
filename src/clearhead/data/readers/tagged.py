"""Tagged words in CoNLL columns: one word a line, its tag in another column, a blank line between sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from clearhead.config import TokenizerConfig
from clearhead.data import lint
from clearhead.data.examples import Tagged, folded
from clearhead.data.files import Line, Preview, lines, suffix
from clearhead.data.readers import READERS, Certainty, Detected, Reader, find_parts
from clearhead.data.source import ReadOptions, Source
from clearhead.data.tables import objects
from clearhead.errors import ConfigError, DataError, nearest

_HEADER = frozenset(
    {"token", "word", "form", "tag", "ner", "ner_tag", "pos", "upos", "xpos", "chunk", "label", "lemma"}
)
# The columns of Universal Dependencies' CoNLL-U, which begins its rows with a number instead of the word.
_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_WORDS = ("tokens", "words")  # keys of JSON objects
_TAGS = ("tags", "ner_tags", "pos_tags", "upos", "labels", "ner", "pos")
_JSON = frozenset({".jsonl", ".ndjson", ".json"})
_NO_WORD = re.compile(r"\d+[-.]\d+\t")  # CoNLL-U rows of multiword tokens and empty nodes: 1-2 and 1.1


@READERS.register("tagged")
class TaggedReader(Reader):
    """Reads sentences with one tag for each word."""

    example_kind, title, unit, task = "tagged", "tagged sentences", "sentences", "tag"
    tokenizer = TokenizerConfig(kind="word")
    suffixes = frozenset({".conll", ".conllu", ".iob", ".iob2", ".bio"})

    def can_read(self, source: Source) -> Detected | None:
        if not source.is_file:
            return None
        rows = source.head()
        if sides_of_objects(source, source.path) is not None:
            return Detected("lists of words and of their tags", Certainty.CERTAIN)
        if mark_of_tags([line for _, line in rows]):
            return Detected("a tag after each word: word/TAG", Certainty.CERTAIN)
        if suffix(source.path) in self.suffixes or looks_tagged(rows):
            return Detected("words in columns with a blank line after each sentence", Certainty.CERTAIN)
        return None

    def read_file(self, source: Source, file: Path) -> Iterator[Tagged]:
        if (keys := sides_of_objects(source, file)) is not None:
            yield from _from_objects(file, source.options.encoding, *keys)
            return
        if mark := mark_of_tags([line for _, line in source.head(file)]):
            yield from _from_marked(file, source.options.encoding, mark)
            return
        layout = find_layout(source.head(file))
        if layout is None:
            raise DataError("is empty", path=file)
        if layout.width < 2:
            raise DataError("has one column where a word and its tag are expected", path=file)
        token, tag = word_and_tag(layout, source.options, file)
        found = False
        for sentence in _sentences(file, layout, source.options.encoding):
            found = True
            words, tags = (tuple(cells[index] for _, cells in sentence) for index in (token, tag))
            yield Tagged(words, tags, sentence[0][0])
        if not found:
            raise DataError("holds a header and no rows", path=file)

    def columns(self, source: Source) -> str:
        file = find_parts(source.path).train[0]
        if (keys := sides_of_objects(source, file)) is not None:
            return f"the words are {keys[0]}, their tags {keys[1]}"
        if mark := mark_of_tags([line for _, line in source.head(file)]):
            return f"the tag of a word is what stands after its last {mark}"
        layout = find_layout(source.head(file))
        if layout is None or layout.width < 3:
            return ""
        chosen = word_and_tag(layout, source.options, file)
        names = layout.names or tuple(str(number + 1) for number in range(layout.width))
        others = [name for index, name in enumerate(names) if index not in chosen]
        word, tag = (names[index] for index in chosen)
        return f"the word is column {word}, its tag column {tag} (not read: {', '.join(others)})"

    def identity(self, example: Tagged) -> bytes:
        return folded(" ".join(example.tokens))

    def texts(self, example: Tagged) -> Mapping[str, Sequence[str]]:
        return {"sentence": (" ".join(example.tokens),)}

    def row(self, key: bytes, example: Tagged) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return example.tokens, example.tags

    def answer(self, example: Tagged) -> tuple[str, ...]:
        return example.tags

    def classes(self, example: Tagged) -> tuple[str, ...]:
        return example.tags

    def problems(self, example: Tagged) -> Iterator[str]:
        yield from lint.text_problems(" ".join(example.tokens))
        if not all(example.tags):
            yield "a word without a tag"


def mark_of_tags(rows: Sequence[str]) -> str:
    """The mark in `the/DET cat/NOUN` or `the_DET cat_NOUN`, if every word has a tag and tags recur; else ""."""
    for mark in "/_":
        words = [word.rpartition(mark) for row in rows for word in row.split()]
        tags = {tag for _, _, tag in words}
        if all(word and tag for word, _, tag in words) and 1 < len(tags) <= len(words) / 4:
            return mark
    return ""


def sides_of_objects(source: Source, file: Path) -> tuple[str, str] | None:
    """The keys of words and tags, if a JSON file has both as lists; tags as the user chose, else the first found."""
    if suffix(file) not in _JSON:
        return None
    first = next((values for _, values in objects(source.preview(file))), {})
    lists = {key: value for key, value in first.items() if isinstance(value, list)}
    words = next((key for key in (source.options.source, *_WORDS) if key in lists), None)
    tags = next((key for key in (source.options.target, *_TAGS) if key in lists and key != words), None)
    return None if words is None or tags is None else (words, tags)


def _from_objects(file: Path, encoding: str, words: str, tags: str) -> Iterator[Tagged]:
    for line, values in objects(Preview(file, encoding)):
        tokens, labels = values.get(words), values.get(tags)
        if not (isinstance(tokens, list) and isinstance(labels, list) and len(tokens) == len(labels)):
            raise DataError(f"needs as many {tags} as {words}", path=file, line=line)
        if tokens:
            yield Tagged(tuple(map(str, tokens)), tuple(map(str, labels)), line)


def _from_marked(file: Path, encoding: str, mark: str) -> Iterator[Tagged]:
    for number, line in lines(file, encoding):
        words = [word.rpartition(mark) for word in line.split()]
        if not all(word and tag for word, _, tag in words):
            raise DataError(f"has a word without a tag; each is written word{mark}TAG", path=file, line=number)
        if words:
            yield Tagged(tuple(word for word, _, _ in words), tuple(tag for _, _, tag in words), number)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of one file are written."""

    separator: str | None  # a tab; None = any white space
    width: int
    names: tuple[str, ...]  # of the columns; empty where nothing names them
    header: int  # its line, 0 without one

    def cells(self, line: str) -> list[str]:
        return line.rstrip().split(self.separator)

    def is_comment(self, number: int, line: str) -> bool:
        """Whether a row is not a word: a header, a comment, the start of a document, or a CoNLL-U range."""
        comment = line.startswith("#") and (" = " in line or len(self.cells(line)) != self.width)
        range_ = self.names == _CONLLU and bool(_NO_WORD.match(line))
        return comment or range_ or number == self.header or line.startswith("-DOCSTART-")


def looks_tagged(rows: Sequence[Line]) -> bool:
    """Whether lines are rows in groups: blank lines between them, equally many columns, tags that recur."""
    layout = find_layout(rows)
    if layout is None or layout.width < 2 or all(line.strip() for _, line in rows[:-1]):
        return False
    words = [layout.cells(line) for number, line in rows if line.strip() and not layout.is_comment(number, line)]
    if any(len(cells) != layout.width or " " in cells[0] for cells in words):
        return False
    _, tag = word_and_tag(layout, ReadOptions(), Path())
    return len({cells[tag] for cells in words}) < len(words)


def find_layout(rows: Sequence[Line]) -> Layout | None:
    """The layout of the first row that is a word or a header; None if there is none."""
    for number, line in rows:
        if line.strip() and not line.startswith(("#", "-DOCSTART-")):
            separator = "\t" if "\t" in line else None
            cells = line.rstrip().split(separator)
            if len(cells) == len(_CONLLU) and (cells[0].isdecimal() or _NO_WORD.match(line)):
                return Layout(separator, len(cells), _CONLLU, 0)
            if len(cells) > 1 and _HEADER.issuperset(map(str.casefold, cells)):
                return Layout(separator, len(cells), tuple(cells), number)
            return Layout(separator, len(cells), (), 0)
    return None


def word_and_tag(layout: Layout, options: ReadOptions, path: Path) -> tuple[int, int]:
    """The columns of the word and its tag: as the user chose, else form and upos in CoNLL-U, else first and last."""
    usual = ("form", "upos") if layout.names == _CONLLU else ("1", str(layout.width))
    token = _column(options.source or usual[0], layout, path)
    tag = _column(options.target or usual[1], layout, path)
    if token == tag:
        raise ConfigError(f"{path}: the word and its tag are the same column")
    return token, tag


def _column(wanted: str, layout: Layout, path: Path) -> int:
    """The index of a column given by name or by number (the first is 1)."""
    if wanted in layout.names:
        return layout.names.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= layout.width:
        return int(wanted) - 1
    known = layout.names or [str(number + 1) for number in range(layout.width)]
    raise DataError(f"has no column {wanted}; {nearest(wanted, known)}", path=path)


def _sentences(path: Path, layout: Layout, encoding: str) -> Iterator[list[tuple[int, list[str]]]]:
    """Groups of (line, cells) between blank lines."""
    for blank, group in groupby(lines(path, encoding), key=lambda row: not row[1].strip()):
        rows = [] if blank else [(number, line) for number, line in group if not layout.is_comment(number, line)]
        words = [(number, layout.cells(line)) for number, line in rows]
        for number, cells in words:
            if len(cells) != layout.width:
                message = f"has {len(cells)} columns where the rows before it have {layout.width}"
                raise DataError(f"{message}; a blank line ends a sentence", path=path, line=number)
        if words:
            yield words
