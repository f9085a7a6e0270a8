"""Files and folders of data: opening, decoding and previewing them, and what their names say.

A file is never read whole: `lines` yields it line by line, `blocks` about a megabyte at a time, and a `Preview` keeps
its first lines for the readers that detect what it holds. gzip and xz are unpacked, and each way in which a file can be
broken is one error sentence.
"""

from __future__ import annotations

import codecs
import difflib
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from clearhead.data.examples import Parts
from clearhead.errors import DataError

MAX_LINE = 1 << 20  # bytes; a longer line is running text or not text at all
BLOCK = 1 << 20  # bytes
PREVIEW = 8 << 20  # characters that a preview keeps

Line = tuple[int, str]  # number, text

TABLES = frozenset({".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json"})
TEXTS = frozenset({".txt", ".text", ".md", ".conll", ".conllu"})
PICTURES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})

# A test part serves as validation only where there is no validation part.
_PARTS = {
    "train": frozenset({"train", "training"}),
    "validation": frozenset({"valid", "validation", "val", "dev", "development"}),
    "test": frozenset({"test", "testing", "t10k"}),
}
_DOCUMENTATION = frozenset({"readme", "license", "licence", "sources", "about"})
_ARCHIVES = {b"PK\x03\x04": "a zip archive", b"BZh": "a bzip2 archive", b"\x28\xb5\x2f\xfd": "a zstd archive"}
_SPREADSHEETS = frozenset({".xlsx", ".xlsm", ".xls", ".ods", ".numbers"})

# ---- Names


def bare_name(path: Path) -> str:
    """The lower-case name of a file without the ending of its compression.

    >>> bare_name(Path("corpus/Train.TSV.gz"))
    'train.tsv'
    """
    name = path.name.lower()
    return name.removesuffix(".gz").removesuffix(".xz")


def suffix(path: Path) -> str:
    """The ending without that of the compression: `.tsv` for `train.tsv.gz`."""
    return Path(bare_name(path)).suffix


def names_file(text: str) -> bool:
    """Whether a text is the name of a text file or table, which may not exist: `a.txt`, but not `see a.txt`."""
    return not re.search(r"\s", text) and suffix(Path(text)) in TEXTS | TABLES


def is_documentation(path: Path) -> bool:
    """Whether a file describes the data: `README.txt`, `LICENSE`."""
    return Path(bare_name(path)).stem in _DOCUMENTATION


def part_name(path: Path) -> str:
    """The part of a dataset that a name stands for: train, validation, test, or "".

    >>> [part_name(Path(name)) for name in ("train.tsv.gz", "wiki.valid.raw", "t10k-images-idx3-ubyte", "emma.txt")]
    ['train', 'validation', 'test', '']
    """
    stem = bare_name(path).removesuffix(suffix(path))
    words = [word for word in re.split(r"[._-]", stem) if word]
    for word in words[:1] + words[-1:]:
        for name, known in _PARTS.items():
            if word in known:
                return name
    return ""


def sort_into_parts(paths: Iterable[Path]) -> Parts[list[Path]]:
    """Sort files or folders by the part that their names stand for; without a train part, all are for training.

    >>> sort_into_parts([Path("dev.tsv"), Path("test.tsv"), Path("train.tsv")])
    Parts(train=[PosixPath('train.tsv')], validation=[PosixPath('dev.tsv')])
    """
    paths = list(paths)
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(part_name(path), []).append(path)
    if "train" not in groups:
        return Parts(paths, None)
    return Parts(groups["train"], groups.get("validation") or groups.get("test"))


# ---- Folders


def existing(path: str | Path, datasets: Iterable[str] = ()) -> Path:
    """The path if it is a file or folder; otherwise an error with the nearest name, also among `datasets`."""
    path = Path(path)
    with _as_data_errors(path):
        if not path.exists():
            raise DataError(f"does not exist{_suggestion(path, datasets)}", path=path)
        if not (path.is_file() or path.is_dir()):
            raise DataError("is neither a file nor a folder", path=path)
    return path


def files_in(folder: Path) -> list[Path]:
    """The files of a folder, sorted by name, without hidden ones."""
    return [folder / entry.name for entry in _entries(folder) if entry.is_file()]


def folders_in(folder: Path) -> list[Path]:
    """The subfolders of a folder, sorted by name, without hidden ones."""
    return [folder / entry.name for entry in _entries(folder) if entry.is_dir()]


# ---- Content


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file, unpacked if they begin like gzip or xz, whatever its name is."""
    with _as_data_errors(path), path.open("rb") as raw, _unpacked(raw) as stream:
        yield stream


def lines(
    path: Path, encoding: str = "utf-8", on_long: Callable[[DataError], None] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of every line, without its ending; a line may have at most `MAX_LINE` bytes.

    A longer one is an error, or, if somebody takes the error by `on_long`, cut.
    """
    with opened(path) as stream:
        _reject_binary(stream, path)
        number = 0
        while raw := stream.readline(MAX_LINE + 1):
            number += 1
            if len(raw) > MAX_LINE:
                problem = _too_long(path, number, len(raw) + _rest_of_line(stream, raw))
                if on_long is None:
                    raise problem
                on_long(problem)
                yield number, _decoded_piece(codecs.getincrementaldecoder(encoding)(), raw, path, number, encoding)
            else:
                yield number, _decoded(raw, encoding, path, number)


class Preview:
    """The first lines of a file, kept so that the file is opened once however many readers look at them.

    Iterating yields every line of the file. Up to `PREVIEW` characters are kept; lines after those are read again by
    the next iteration. Of a JSON file a line that is too long for a row is cut, and `too_long` is the error about it.
    `close` closes the file and keeps the lines.
    """

    too_long: DataError | None = None

    def __init__(self, path: Path, encoding: str = "utf-8"):
        self.path, self.encoding = path, encoding
        self._kept: list[Line] = []
        self._room = PREVIEW
        self._rest: Iterator[Line] | None = None  # continues after the kept lines
        self._is_whole = False

    def __iter__(self) -> Iterator[Line]:
        index = 0
        while True:
            while index < len(self._kept):
                yield self._kept[index]
                index += 1
            if self._is_whole:
                return
            rest, self._rest = self._rest or self._reopened(), None
            if self._room <= 0:
                yield from rest
                return
            line = next(rest, None)
            if line is None:
                self._is_whole = True
                return
            self._kept.append(line)
            self._room -= len(line[1])
            self._rest = rest

    def head(self, count: int = 1000, budget: int = 4 << 20) -> list[Line]:
        """The first lines, until there are `count` of them or more than `budget` characters."""
        kept: list[Line] = []
        for number, line in self:
            kept.append((number, line))
            budget -= len(line)
            if len(kept) == count or budget < 0:
                break
        return kept

    def has_text(self) -> bool:
        """Whether one of the lines read so far is more than white space."""
        return any(line.strip() for _, line in self._kept)

    def close(self) -> None:
        self._rest = None  # the generator's file is closed with it

    def _reopened(self) -> Iterator[Line]:
        on_long = self._cut if suffix(self.path) == ".json" else None  # a document may be one line
        return islice(lines(self.path, self.encoding, on_long), len(self._kept), None)

    def _cut(self, problem: DataError) -> None:
        self.too_long = self.too_long or problem


def blocks(path: Path, encoding: str = "utf-8", size: int = BLOCK) -> Iterator[str]:
    """Yield the text in blocks of about `size` bytes, each cut after a line, or else after a space."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with opened(path) as stream:
        _reject_binary(stream, path)
        rest, number = "", 1
        while raw := stream.read(size):
            text = rest + _decoded_piece(decoder, raw, path, number, encoding)
            cut = _last_break(text) if len(raw) == size else len(text)  # the last piece needs no cut
            if cut:
                yield text[:cut].replace("\r\n", "\n")
            rest = text[cut:]
            number += raw.count(b"\n")
        rest += _decoded_piece(decoder, b"", path, number, encoding)
        if rest:
            yield rest.replace("\r\n", "\n")


@contextmanager
def _as_data_errors(path: Path) -> Iterator[None]:
    """Turn operating system and compression errors into a DataError that a user can act on."""
    try:
        yield
    except EOFError:
        raise DataError("ends in the middle (truncated download?); fetch it again", path=path) from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError):
        raise DataError("is damaged: its compressed bytes do not unpack; fetch it again", path=path) from None
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise DataError(f"cannot be read: {reason}", path=path) from None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The visible entries of a folder; a DirEntry tells files from folders without another system call."""
    with _as_data_errors(folder), os.scandir(folder) as found:
        return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _suggestion(path: Path, datasets: Iterable[str]) -> str:
    """The end of the error about a path that does not exist."""
    folder = path.parent
    known = [f"the dataset {name}" for name in difflib.get_close_matches(str(path), list(datasets), n=1)]
    if not (folder.is_dir() or known):
        return f", and neither does the folder {folder}"
    beside = [entry.name for entry in _entries(folder)] if folder.is_dir() else []
    close = [str(folder / name) for name in difflib.get_close_matches(path.name, beside, n=1)] + known
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _unpacked(raw: io.BufferedReader) -> io.BufferedReader:
    magic = raw.peek(6)[:6]
    if magic.startswith(b"\x1f\x8b"):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if magic == b"\xfd7zXZ\x00":
        return io.BufferedReader(lzma.LZMAFile(raw))
    return raw


def _reject_binary(stream: io.BufferedReader, path: Path) -> None:
    """Raise an error that names what a binary file is; skip a byte order mark."""
    start = stream.peek(1024)
    if start[257:262] == b"ustar":
        raise DataError("is a tar archive; unpack it first and give the folder", path=path)
    if suffix(path) in _SPREADSHEETS and b"\0" in start:
        raise DataError("is a spreadsheet; save its sheet as CSV (UTF-8) first", path=path)
    if start.startswith(b"PAR1"):
        advice = f'save it as CSV, or from Python give data=pandas.read_parquet("{path.name}") to clearhead.train'
        raise DataError(f"is a Parquet file; {advice}", path=path)
    for magic, name in _ARCHIVES.items():
        if start.startswith(magic):
            raise DataError(f"is {name}; unpack it first", path=path)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError("is UTF-16 text; save it as UTF-8 first", path=path)
    if b"\0" in start:
        raise _binary(path)
    if start.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))


def _decoded(raw: bytes, encoding: str, path: Path, number: int) -> str:
    if b"\0" in raw:
        raise _binary(path, number)
    try:
        return raw.decode(encoding).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as problem:
        raise _wrong_encoding(problem, encoding, path, number) from None


def _decoded_piece(decoder: codecs.IncrementalDecoder, raw: bytes, path: Path, number: int, encoding: str) -> str:
    """Decode the next bytes, none in the last call; `number` is the line they begin in."""
    if b"\0" in raw:
        raise _binary(path, number + raw[: raw.index(b"\0")].count(b"\n"))
    try:
        return decoder.decode(raw, final=not raw)
    except UnicodeDecodeError as problem:
        line = number + problem.object[: problem.start].count(b"\n")
        raise _wrong_encoding(problem, encoding, path, line) from None


def _binary(path: Path, number: int | None = None) -> DataError:
    return DataError("is a binary file, not text (it holds a NUL byte)", path=path, line=number)


def _wrong_encoding(problem: UnicodeDecodeError, encoding: str, path: Path, number: int) -> DataError:
    other = "latin-1" if encoding.lower().startswith("utf") else "utf-8 or latin-1"
    byte = f"0x{problem.object[problem.start]:02X}"
    advice = f"name its encoding, e.g. --encoding {other} (data.encoding={other})"
    return DataError(f"is not {encoding} text (byte {byte}); {advice}", path=path, line=number)


def _too_long(path: Path, number: int, size: int) -> DataError:
    advice = "if it is one long running text, read it with --kind text (data.kind=text)"
    return DataError(f"is {size / 1e6:,.1f} MB long, over the limit of 1 MB; {advice}", path=path, line=number)


def _rest_of_line(stream: io.BufferedReader, raw: bytes) -> int:
    """The number of bytes left in an overlong line, read one block at a time."""
    size = 0
    while raw and not raw.endswith(b"\n"):
        raw = stream.readline(BLOCK)
        size += len(raw)
    return size


def _last_break(text: str) -> int:
    """Where to cut: after the last line, else after the last space, else at the end (but never inside `\\r\\n`)."""
    cut = text.rfind("\n") + 1 or text.rfind(" ") + 1
    return cut or len(text) - text.endswith("\r")
