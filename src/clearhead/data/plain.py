"""Plain text: a book, a crawl, a folder of .txt files, as a stream of blocks that never fills the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from clearhead.data import names
from clearhead.data.examples import Labelled
from clearhead.data.files import Reading, blocks, files_in
from clearhead.data.splits import Parts, own_parts
from clearhead.errors import DataError

_SLACK = 1000  # characters by which a border may move back to the end of a line


class RunningText:
    """Running text from files, about a megabyte at a time; it can be iterated again and again."""

    def __init__(self, files: Sequence[Path], encoding: str = "utf-8"):
        self.files = tuple(files)
        self.encoding = encoding

    def __iter__(self) -> Iterator[str]:
        return _one_by_one(blocks(file, self.encoding) for file in self.files)

    @cached_property
    def characters(self) -> int:
        """How long the text is; the first time this reads all of it."""
        return sum(map(len, self))


class TextInMemory(tuple[str, ...]):
    """Running text that is there already, as blocks."""

    @property
    def characters(self) -> int:
        """How long the text is."""
        return sum(map(len, self))


class TextPart:
    """The beginning or the end of a running text, the border moved back to the end of a line where one is near."""

    def __init__(self, whole: RunningText | TextInMemory, share: float, *, held_out: bool):
        self.whole = whole
        self.share = share
        self.held_out = held_out

    def __iter__(self) -> Iterator[str]:
        border = self.whole.characters - round(self.whole.characters * self.share)
        slack = min(_SLACK, self.whole.characters - border)
        begins = 0
        for block in self.whole:
            cut = _cut(block, border - begins, slack)
            begins += len(block)
            piece = block[cut:] if self.held_out else block[:cut]
            if piece:
                yield piece
            if begins >= border and not self.held_out:
                return

    @cached_property
    def characters(self) -> int:
        """How long this part is; the first time this reads all of it."""
        return sum(map(len, self))


class JoinedText:
    """Texts one after the other, each beginning on a new line."""

    def __init__(self, texts: Sequence[RunningText | TextInMemory | TextPart]):
        self.texts = tuple(texts)

    def __iter__(self) -> Iterator[str]:
        return _one_by_one(self.texts)

    @cached_property
    def characters(self) -> int:
        """How long all of them are; the first time this reads all of it."""
        return sum(map(len, self))


Text = RunningText | TextInMemory | TextPart | JoinedText


def read(path: Path, reading: Reading, share: float) -> tuple[Text, Text]:
    """Training and validation text: a folder's own parts, else the last `share` of the characters held out."""
    parts = own_parts(text_files(path)) if path.is_dir() else Parts([path], None)
    train = RunningText(parts.train, reading.encoding)
    if not any(block.strip() for block in train):
        raise DataError("is empty", path=path)
    if parts.validation is not None:
        return train, RunningText(parts.validation, reading.encoding)
    return split_text(train, share)


def of_examples(parts: Parts[Labelled], share: float) -> tuple[Text, Text]:
    """The texts of examples, each on a line of its own."""
    train = _lines(parts.train)
    return split_text(train, share) if parts.validation is None else (train, _lines(parts.validation))


def split_text(whole: RunningText | TextInMemory, share: float) -> tuple[Text, Text]:
    """Hold out the last `share` of the characters."""
    if share == 0:
        return whole, TextInMemory()
    return TextPart(whole, share, held_out=False), TextPart(whole, share, held_out=True)


def text_files(folder: Path) -> list[Path]:
    """The files of a folder that hold running text."""
    found = [entry for entry in files_in(folder) if is_text_file(entry)]
    if not found:
        raise DataError("holds no .txt file", path=folder)
    return found


def is_text_file(path: Path) -> bool:
    """Whether a name is one of a text to learn from: `emma.txt`, `wiki.train.raw`, not `README.txt`."""
    return names.suffix(path) in names.TEXTS and Path(names.bare(path)).stem not in names.NOT_DATA


def _lines(examples: Sequence[Labelled]) -> TextInMemory:
    return TextInMemory(" ".join(example.text.splitlines()) + "\n" for example in examples)


def _one_by_one(texts: Iterable[Iterable[str]]) -> Iterator[str]:
    """The blocks of each text; the last word of one and the first of the next are kept apart by a line break."""
    block = "\n"
    for text in texts:
        between = "" if block.endswith("\n") else "\n"
        for block in text:
            if between:
                yield between
            yield block
            between = ""


def _cut(block: str, border: int, slack: int) -> int:
    """The place in a block where the first part ends; `border` may lie before or behind the block."""
    if border <= 0 or border >= len(block):
        return 0 if border <= 0 else len(block)
    floor = max(0, border - slack)
    return block.rfind("\n", floor, border) + 1 or block.rfind(" ", floor, border) + 1 or border
