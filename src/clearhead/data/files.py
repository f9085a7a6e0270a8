"""Opening files: gzip and xz unpacked, bytes made text, and one sentence for each way a file can be broken.

A file is never read whole: `lines` gives it line by line, `blocks` about a megabyte at a time.
"""

from __future__ import annotations

import codecs
import difflib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clearhead.errors import ConfigError, DataError

LONGEST_LINE = 1 << 20  # bytes; a longer line is running text or not text at all
BLOCK = 1 << 20  # bytes

_ARCHIVES = {b"PK\x03\x04": "a zip archive", b"BZh": "a bzip2 archive", b"\x28\xb5\x2f\xfd": "a zstd archive"}


@dataclass(frozen=True, slots=True)
class Reading:
    """How the user wants a path read: which encoding, and which columns or languages are the two sides."""

    encoding: str = "utf-8"
    source: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        """An encoding must be known, and end its lines as ASCII does."""
        try:
            fits = self.encoding == "utf-8-sig" or "\n\t,".encode(self.encoding) == b"\n\t,"
        except (LookupError, ValueError):
            raise ConfigError(f"unknown encoding {self.encoding}; try utf-8, latin-1 or cp1252") from None
        if not fits:
            raise ConfigError(f"encoding {self.encoding} is not read here; convert the file to utf-8 first")


def existing(path: str | Path, datasets: Iterable[str] = ()) -> Path:
    """The path, when there is a file or a folder; else the nearest name that exists, there or among the datasets."""
    path = Path(path)
    with _one_sentence(path):
        if not path.exists():
            raise DataError(f"does not exist{_meant(path, datasets)}", path=path)
        if not (path.is_file() or path.is_dir()):
            raise DataError("is neither a file nor a folder", path=path)
    return path


def files_in(folder: Path) -> list[Path]:
    """The files of a folder in the order of their names; hidden ones are left out."""
    return [folder / entry.name for entry in _entries(folder) if entry.is_file()]


def folders_in(folder: Path) -> list[Path]:
    """The folders of a folder in the order of their names; hidden ones are left out."""
    return [folder / entry.name for entry in _entries(folder) if entry.is_dir()]


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file, unpacked when they begin as gzip or xz do, whatever its name says."""
    with _one_sentence(path), path.open("rb") as raw, _unpacked(raw) as stream:
        yield stream


def lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """(number, text) of every line, without its ending; a line may have at most `LONGEST_LINE` bytes."""
    with opened(path) as stream:
        _refuse_binary(stream, path)
        number = 0
        while raw := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(raw) > LONGEST_LINE:
                raise _too_long(path, number, len(raw) + _rest_of_line(stream, raw))
            yield number, _decoded(raw, encoding, path, number)


def head(path: Path, encoding: str = "utf-8", count: int = 1000, budget: int = 4 << 20) -> list[tuple[int, str]]:
    """The first lines of a file, as many as the budget of characters allows."""
    kept: list[tuple[int, str]] = []
    for number, line in lines(path, encoding):
        kept.append((number, line))
        budget -= len(line)
        if len(kept) == count or budget < 0:
            break
    return kept


def blocks(path: Path, encoding: str = "utf-8", size: int = BLOCK) -> Iterator[str]:
    """The whole text in pieces of about `size` bytes, each cut after a line, or else after a blank."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with opened(path) as stream:
        _refuse_binary(stream, path)
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
def _one_sentence(path: Path) -> Iterator[None]:
    """Turn what goes wrong below into an error that a user can act on."""
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
    """What a folder holds; these entries know file from folder without another look at the disk."""
    with _one_sentence(folder), os.scandir(folder) as found:
        return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _meant(path: Path, datasets: Iterable[str]) -> str:
    """The end of a sentence about a path that is not there."""
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


def _refuse_binary(stream: io.BufferedReader, path: Path) -> None:
    """Say what a file without text is, before a decoder stumbles over it; skip a byte order mark."""
    start = stream.peek(1024)
    if start[257:262] == b"ustar":
        raise DataError("is a tar archive; unpack it first and give the folder", path=path)
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
    """Decode the next bytes; the last call has none. `number` is the line they begin in."""
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
    advice = "if it is one long running text, say so with --kind text (data.kind=text)"
    return DataError(
        f"is {size / 1e6:,.1f} MB long, over the 1 MB that a line may have; {advice}", path=path, line=number
    )


def _rest_of_line(stream: io.BufferedReader, raw: bytes) -> int:
    """How many bytes of an overlong line are still to come, held one piece at a time."""
    size = 0
    while raw and not raw.endswith(b"\n"):
        raw = stream.readline(BLOCK)
        size += len(raw)
    return size


def _last_break(text: str) -> int:
    """Where to cut: after the last line, else after the last blank, else at the end (but never inside `\\r\\n`)."""
    cut = text.rfind("\n") + 1 or text.rfind(" ") + 1
    return cut or len(text) - text.endswith("\r")
