"""Windows: running text -> a file of token ids -> rows to train a language model on.

    tokens = write_tokens(blocks, tokenizer, "train.npy")
    for rows in Windows(tokens, length=256, batch=32, seed=1):      # (B, length + 1)
        inputs, targets = rows[:, :-1], rows[:, 1:]

The corpus is never in memory: text goes to the file in small pieces, and windows are copied from a memory map that is
closed after each batch. The file is a plain one-dimensional .npy that `numpy.load` can open.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from clearhead.data.batches import Cursor, generator, share
from clearhead.errors import DataError
from clearhead.text import Tokenizer, split_chunks

CHUNK = 1 << 19  # characters encoded at once
SAMPLE = 1 << 14  # tokens at each end of a file that identify it

TokenType = np.dtype[np.uint16] | np.dtype[np.uint32]

# B windows in a batch, N tokens in the file


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file of token ids: where they begin, how many there are, and their type."""

    path: Path
    count: int
    dtype: TokenType
    offset: int

    @classmethod
    def open(cls, path: str | Path) -> TokenFile:
        """Check that a file is complete and holds token ids; none of them is read."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                npy.read_magic(file)
                shape, _, dtype = npy.read_array_header_1_0(file)
                offset, size = file.tell(), os.fstat(file.fileno()).st_size
        except OSError as problem:
            raise DataError(f"cannot be read: {problem.strerror or problem}", path=path) from None
        except ValueError:
            raise DataError("is not a token file; write one with write_tokens", path=path) from None
        if len(shape) != 1 or dtype not in (np.uint16, np.uint32):
            raise DataError(f"holds {dtype} numbers of shape {shape}, not a row of token ids", path=path)
        if size != offset + shape[0] * dtype.itemsize:
            held = (size - offset) // dtype.itemsize
            raise DataError(f"holds {held} tokens where its header says {shape[0]}; write it again", path=path)
        return cls(path, shape[0], dtype, offset)

    def __len__(self) -> int:
        return self.count

    def read(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """The `length` tokens from each start on, (B, length); the memory map is released on return."""
        tokens = np.memmap(self.path, self.dtype, "r", self.offset, (self.count,))  # (N,)
        rows: NDArray[np.int64] = tokens[starts[:, None] + np.arange(length)].astype(np.int64)  # (B, length)
        return rows


def write_tokens(blocks: Iterable[str], tokenizer: Tokenizer, path: str | Path, *, stop: bool = False) -> TokenFile:
    """Encode text block by block into a token file; `stop` adds a stop token after each block."""
    path = Path(path)
    dtype: TokenType = np.dtype(np.uint16) if len(tokenizer) <= 1 << 16 else np.dtype(np.uint32)
    count = 0
    with _replacing(path) as file:
        _write_header(file, dtype, 0)
        for ids in _encoded(blocks, tokenizer, [tokenizer.stop] if stop else []):
            file.write(np.array(ids, dtype).tobytes())
            count += len(ids)
        file.seek(0)
        _write_header(file, dtype, count)  # as long as the first header: numpy leaves room for the count to grow
    return TokenFile.open(path)


class Windows(Cursor):
    """Windows of length + 1 tokens, (B, length + 1): inputs, and targets shifted by one.

    Each epoch starts the windows at another first token, so that their borders move, and shuffles them. Less than two
    windows of text at the ends are left out, and at most world - 1 windows.
    """

    def __init__(self, tokens: TokenFile, *, length: int, batch: int, seed: int, rank: int = 0, world: int = 1):
        if len(tokens) <= length:
            raise DataError(
                f"holds {len(tokens)} tokens, too few for one window of {length} + 1; shorten the window or add text",
                path=tokens.path,
            )
        super().__init__({"seed": seed, "world": world, "length": length, "batch": batch, "data": _fingerprint(tokens)})
        self._tokens, self._length, self._batch = tokens, length, batch
        self._seed, self._rank, self._world = seed, rank, world
        self._windows = max(1, len(tokens) // length - 1)
        if self._windows < world:
            raise DataError(f"holds {self._windows} windows, too few for {world} processes", path=tokens.path)

    def __len__(self) -> int:
        return -(-(self._windows // self._world) // self._batch)

    def plan(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """The first token of each window, batch by batch."""
        random = generator(self._seed, epoch)
        spare = len(self._tokens) - self._windows * self._length  # at least 1, for the last target
        first = random.integers(min(spare, self._length))
        starts = share(random.permutation(self._windows), self._rank, self._world)
        starts *= self._length  # in place: a big corpus has millions of windows
        starts += first
        return [starts[i : i + self._batch] for i in range(0, len(starts), self._batch)]

    def read(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of the windows that begin at these positions."""
        return self._tokens.read(batch, self._length + 1)


def _encoded(blocks: Iterable[str], tokenizer: Tokenizer, end: list[int]) -> Iterator[list[int]]:
    """Yield the ids of each piece of each block, with `end` after each block."""
    for chunk in _chunks(blocks):
        for ids, (_, last) in zip(tokenizer.encode_batch([piece for piece, _ in chunk]), chunk, strict=True):
            yield ids + end if last else ids


def _chunks(blocks: Iterable[str]) -> Iterator[list[tuple[str, bool]]]:
    """Yield the pieces to encode at once, each with whether it is the last of its block."""
    chunk: list[tuple[str, bool]] = []
    characters = 0
    for block in blocks:
        parts = list(split_chunks(block))
        for number, piece in enumerate(parts, start=1):
            chunk.append((piece, number == len(parts)))
            characters += len(piece)
            if characters >= CHUNK:
                yield chunk
                chunk, characters = [], 0
    yield chunk


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` only when it is complete and synced."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        raise DataError(f"cannot be written: {problem.strerror or problem}", path=path) from None
    finally:
        temporary.unlink(missing_ok=True)


def _write_header(file: BinaryIO, dtype: TokenType, count: int) -> None:
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    npy.write_array_header_1_0(file, header)


def _fingerprint(tokens: TokenFile) -> str:
    """A hash of the number of tokens and of both ends."""
    length = min(SAMPLE, len(tokens))
    ends = tokens.read(np.array([0, len(tokens) - length]), length)  # (2, length)
    return hashlib.sha256(len(tokens).to_bytes(8, "little") + ends.tobytes()).hexdigest()[:16]
