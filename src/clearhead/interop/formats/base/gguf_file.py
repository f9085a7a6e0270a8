"""The GGUF container: metadata and tensors of one memory-mapped file.

    magic "GGUF", version, number of tensors, number of metadata entries
    each entry: name, type, value                   a value is a number, a string, or an array of these
    each tensor: name, sizes (fastest first), type, offset
    padding, then the tensors' bytes

Nothing that the header says is believed before it is compared with the size of the file, so that a file which lies
about its counts costs no memory. Quantised blocks are expanded to float32 by the `gguf` package, tensor by tensor.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.errors import RunError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
MAX_DIMENSIONS = 4  # of a tensor, as in ggml
SCALARS = {  # the type of a metadata value: its numpy type
    **{0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4"},
    **{6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"},
}
PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
Q8_1_BYTES = 36  # of a block of 32: two float16, then bytes; the package's table has the size before these were halved


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor is, and how it is stored."""

    shape: tuple[int, ...]  # slowest first, as torch has it
    kind: str  # "F32", "Q4_1", …
    offset: int  # in the file
    size: int  # bytes


class GgufFile:
    """The metadata and the tensors of a GGUF file."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as problem:  # an empty file cannot be mapped
            raise RunError(f"cannot read {path}: {getattr(problem, 'strerror', None) or problem}") from None
        header = _Header(path, self._bytes)
        self.metadata = header.metadata
        self.tensors = header.tensors

    def read(self, name: str) -> Tensor:
        """A tensor as it is stored if it is plain, else dequantised to float32."""
        info = self.tensors[name]
        return torch.from_numpy(expand(self._rows(info), info.kind).reshape(info.shape))

    def read_blocks(self, name: str) -> Tensor:
        """The rows of a tensor as they are stored: (rows, bytes)."""
        return torch.from_numpy(self._rows(self.tensors[name]).copy())

    def _rows(self, info: TensorInfo) -> NDArray[np.uint8]:
        stored = np.frombuffer(self._bytes, np.uint8, info.size, info.offset)
        return stored.reshape(-1, info.size * info.shape[-1] // prod(info.shape))


class _Header:
    """Reads a header from front to back."""

    def __init__(self, path: Path, content: memoryview):
        self.path, self.content, self.place = path, content, 0
        if bytes(content[:4]) != MAGIC:
            raise RunError(f"{path} is not a GGUF file: it does not begin with GGUF")
        self.place = 4
        version = self.number("<I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            what = "is in the byte order of another processor" if swapped else f"has version {version}"
            raise RunError(f"{path} {what}; Clearhead reads little-endian GGUF of version 2 and 3")
        tensor_count = self.count("tensors", least=24)
        entry_count = self.count("metadata entries", least=13)
        self.metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self.string()
            self.metadata[key] = self.value(self.number("<I"))
        found = [self.tensor() for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise RunError(f"{path} is damaged: its alignment is {alignment}, which is no power of two")
        first = -(-self.place // alignment) * alignment
        self.tensors = {name: self.placed(name, info, first) for name, info in found}

    def damaged(self, what: str) -> RunError:
        return RunError(f"{self.path} is damaged or cut off: {what}; download it again")

    def take(self, size: int) -> memoryview:
        if size > len(self.content) - self.place:
            raise self.damaged(f"its header needs {size:,} bytes at {self.place:,}, and the file ends before")
        self.place += size
        return self.content[self.place - size : self.place]

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def count(self, what: str, least: int) -> int:
        """A number of things, each of which takes at least so many bytes of what is left."""
        count, left = self.number("<Q"), len(self.content) - self.place
        if count * least > left:
            raise self.damaged(f"it claims {count:,} {what}, for which {left:,} bytes are too few")
        return count

    def string(self) -> str:
        try:
            return bytes(self.take(self.count("characters", least=1))).decode()
        except UnicodeDecodeError:
            raise self.damaged(f"the string before byte {self.place:,} is not UTF-8") from None

    def value(self, kind: int, inside: bool = False) -> Any:
        if kind in SCALARS:
            return np.frombuffer(self.take(np.dtype(SCALARS[kind]).itemsize), SCALARS[kind])[0].item()
        if kind == STRING:
            return self.string()
        if kind != ARRAY or inside:
            raise self.damaged(f"a value of unknown type {kind} stands at byte {self.place:,}")
        inner = self.number("<I")
        if inner in SCALARS:
            dtype = np.dtype(SCALARS[inner])
            return np.frombuffer(self.take(self.count("numbers", dtype.itemsize) * dtype.itemsize), dtype)
        return [self.value(inner, inside=True) for _ in range(self.count("strings", least=8))]

    def tensor(self) -> tuple[str, TensorInfo]:
        """A tensor whose offset is still relative."""
        name = self.string()
        dimensions = self.number("<I")
        if dimensions > MAX_DIMENSIONS:
            raise self.damaged(f"the tensor {name} has {dimensions:,} dimensions")
        shape = tuple(self.number("<Q") for _ in range(dimensions))[::-1]
        return name, TensorInfo(shape, _kind_name(self.number("<I"), name, self.path), self.number("<Q"), 0)

    def placed(self, name: str, info: TensorInfo, first: int) -> TensorInfo:
        """The tensor with its place in the file, which must hold all of it."""
        block, block_bytes = block_size(info.kind)
        elements = prod(info.shape)
        if not info.shape or elements == 0 or info.shape[-1] % block:
            raise self.damaged(f"the tensor {name} of {info.kind} has the shape {info.shape}")
        offset, size = first + info.offset, elements // block * block_bytes
        if offset + size > len(self.content):
            raise self.damaged(f"the tensor {name} ends at byte {offset + size:,} of {len(self.content):,}")
        return TensorInfo(info.shape, info.kind, offset, size)


# --- how tensors are stored ---


def _library() -> Any:
    try:
        import gguf
    except ImportError:
        raise RunError("reading and writing GGUF needs the package gguf; pip install 'clearhead[interop]'") from None
    return gguf


def _kind_name(number: int, tensor: str, path: Path) -> str:
    try:
        return str(_library().GGMLQuantizationType(number).name)
    except ValueError:
        raise RunError(
            f"{path}: the tensor {tensor} is stored as type {number}, which Clearhead does not know"
        ) from None


def block_size(kind: str) -> tuple[int, int]:
    """The numbers in one block of a type, and its bytes."""
    if kind == "Q8_1":
        return 32, Q8_1_BYTES
    library = _library()
    numbers, size = library.GGML_QUANT_SIZES[library.GGMLQuantizationType[kind]]
    return numbers, size


def expand(stored: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Rows of bytes -> rows of the numbers that they stand for; quantised ones as float32."""
    if kind in PLAIN:
        return stored.view(PLAIN[kind]).copy()
    if kind in _OWN:
        return _OWN[kind](stored.reshape(-1, block_size(kind)[1]))
    library = _library()
    expanded: NDArray[np.float32] = library.quants.dequantize(stored, library.GGMLQuantizationType[kind])
    return expanded


def _expand_q8_1(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """float16 scale, float16 sum (not needed), 32 bytes."""
    return blocks[:, :2].copy().view("<f2").astype(np.float32) * blocks[:, 4:].copy().view(np.int8)


def _expand_q8_k(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """float32 scale, 256 bytes, 16 sums (not needed)."""
    return blocks[:, :4].copy().view("<f4") * blocks[:, 4:260].copy().view(np.int8)


def _expand_q1_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """float16 scale, then one bit for the sign of each of 128 numbers, the lowest first."""
    signs = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32) * 2 - 1
    return blocks[:, :2].copy().view("<f2").astype(np.float32) * signs


_OWN = {"Q8_1": _expand_q8_1, "Q8_K": _expand_q8_k, "Q1_0": _expand_q1_0}
