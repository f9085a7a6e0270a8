"""Running text: a book, a crawl, a folder of .txt files, as a stream of blocks that never fills the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from clearhead.data.examples import Parts, held_out_share
from clearhead.data.files import blocks, files_in, is_documentation, part_name, sort_into_parts, suffix
from clearhead.data.readers import READERS, Certainty, Detected, Reader, data_files
from clearhead.data.source import Source
from clearhead.errors import DataError

_MOST_HELD_OUT = 100_000  # characters, where nobody said how many
_MARKDOWN = frozenset({".md", ".markdown"})  # beside other data they are notes about it
_SLACK = 1000  # characters by which a border may move back to the end of a line


class RunningText:
    """Running text from files, about a megabyte at a time; it can be iterated any number of times."""

    def __init__(self, files: Sequence[Path], encoding: str = "utf-8"):
        self.files = tuple(files)
        self.encoding = encoding

    def __iter__(self) -> Iterator[str]:
        return _concatenated(blocks(file, self.encoding) for file in self.files)

    @cached_property
    def characters(self) -> int:
        """The length of the text; the first time this reads all of it."""
        return sum(map(len, self))


class TextInMemory(tuple[str, ...]):
    """Running text that is in memory, as blocks."""

    @property
    def characters(self) -> int:
        """The length of the text."""
        return sum(map(len, self))


class TextPart:
    """The beginning or the end of a running text, cut at the end of a line if one is near."""

    def __init__(self, whole: RunningText | TextInMemory, share: float | None, *, held_out: bool):
        self.whole = whole
        self.share = share
        self.held_out = held_out

    def __iter__(self) -> Iterator[str]:
        share = held_out_share(self.share, self.whole.characters, _MOST_HELD_OUT)
        border = self.whole.characters - round(self.whole.characters * share)
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
        """The length of this part; the first time this reads all of it."""
        return sum(map(len, self))


class JoinedText:
    """Texts one after the other, each beginning on a new line."""

    def __init__(self, texts: Sequence[RunningText | TextInMemory | TextPart]):
        self.texts = tuple(texts)

    def __iter__(self) -> Iterator[str]:
        return _concatenated(self.texts)

    @cached_property
    def characters(self) -> int:
        """The length of all texts; the first time this reads all of it."""
        return sum(map(len, self))


Text = RunningText | TextInMemory | TextPart | JoinedText


@READERS.register("text")
class TextReader(Reader):
    """Reads running text; where there is no validation part, the end of the text is held out."""

    example_kind, title, unit, task = "text", "running text", "characters", "lm"
    suffixes = frozenset({".txt", ".raw", ".tokens"})

    def can_read(self, source: Source) -> Detected | None:
        if source.is_folder:
            files = data_files(source.path)
            if not files and (notes := _of_kind(source.path, _MARKDOWN)):
                return Detected(f"a folder of {len(notes)} Markdown files", Certainty.GUESS)
            several = len(files) > 1 and all(map(is_text_file, files))
            if several and part_name(sort_into_parts(files).train[0]) != "train":
                return Detected(f"a folder of {len(files)} text files", Certainty.GUESS)
            return None
        if not source.is_file or source.is_table():
            return None
        return Detected("running text", Certainty.GUESS)

    def read(self, source: Source) -> Parts[RunningText]:
        parts = sort_into_parts(_text_files(source.path)) if source.is_folder else Parts([source.path], None)
        train = RunningText(parts.train, source.options.encoding)
        is_known = any(source.preview(file).has_text() for file in parts.train)  # spares opening the file once more
        if not is_known and not any(block.strip() for block in train):
            raise DataError("is empty", path=source.path)
        held_out = parts.validation
        return Parts(train, None if held_out is None else RunningText(held_out, source.options.encoding))

    def columns(self, source: Source) -> str:
        notes = _of_kind(source.path, _MARKDOWN) if source.is_folder and data_files(source.path) else []
        listed = ", ".join(entry.name for entry in notes[:4])
        return f"Markdown beside the texts is not read: {listed}{', …' * (len(notes) > 4)}" if notes else ""

    def identity(self, example: str) -> bytes:
        return example.encode("utf-8", "surrogatepass")

    def split(self, examples: RunningText | TextInMemory, share: float | None) -> tuple[Text, Text]:
        """Hold out the last `share` of the characters."""
        if share == 0:
            return examples, TextInMemory()
        return TextPart(examples, share, held_out=False), TextPart(examples, share, held_out=True)


def is_text_file(path: Path) -> bool:
    """Whether a file is a text to train on, by its name: `emma.txt`, `wiki.train.raw`, but not `README.txt`."""
    return suffix(path) in TextReader.suffixes and not is_documentation(path)


def _of_kind(folder: Path, suffixes: frozenset[str]) -> list[Path]:
    return [entry for entry in files_in(folder) if suffix(entry) in suffixes and not is_documentation(entry)]


def _text_files(folder: Path) -> list[Path]:
    if found := _of_kind(folder, TextReader.suffixes) or _of_kind(folder, _MARKDOWN):
        return found
    raise DataError("holds no .txt file", path=folder)


def _concatenated(texts: Iterable[Iterable[str]]) -> Iterator[str]:
    """The blocks of all texts, with a line break between two texts if the first does not end with one."""
    block = "\n"
    for text in texts:
        between = "" if block.endswith("\n") else "\n"
        for block in text:
            if between:
                yield between
            yield block
            between = ""


def _cut(block: str, border: int, slack: int) -> int:
    """Where the first part ends in a block; `border` may lie before or after the block."""
    if border <= 0 or border >= len(block):
        return 0 if border <= 0 else len(block)
    floor = max(0, border - slack)
    return block.rfind("\n", floor, border) + 1 or block.rfind(" ", floor, border) + 1 or border
