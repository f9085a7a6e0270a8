"""Memory for weights, keys and values, in large pages where the system has them.

A step reads all weights of a model, and all keys and values of its texts. In pages of 4 KB the processor looks up where
each of them is, and what it fetches ahead ends with the page; Linux maps memory in pages of 2 MB for whoever asks.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress
from math import prod

import torch
from torch import Tensor

LINE = 64  # bytes of a line of the cache, at which every piece begins
LARGE_PAGE = 2 << 20
FIRST, MORE = 1 << 20, 64 << 20  # bytes that are reserved: small models need no large page


class WeightMemory:
    """Hands out zeroed memory piece by piece, one behind another.

    What is reserved takes memory only where it is used, and lives as long as any of its pieces.
    """

    def __init__(self) -> None:
        self._reserved, self._used = _reserve(FIRST), 0

    def zeros(self, size: int) -> Tensor:
        """(size,) bytes."""
        if self._used + size > len(self._reserved):
            self._reserved, self._used = _reserve(max(size, MORE)), 0
        piece = self._reserved[self._used : self._used + size]
        self._used += -(-size // LINE) * LINE
        return piece

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor, contiguous."""
        source = tensor.detach()
        own = self.zeros(source.numel() * source.element_size()).view(source.dtype).view(source.shape)
        return own.copy_(source)


def large_empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor whose numbers are not set, in large pages if it is large."""
    size = prod(shape) * dtype.itemsize
    return _reserve(size)[:size].view(dtype).view(*shape)


def return_freed_memory() -> None:
    """Give the system back what was needed to read a model; the allocator of Linux keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _reserve(size: int) -> Tensor:
    """At least `size` zeroed bytes."""
    if size < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return _aligned(torch.zeros(size + LINE, dtype=torch.uint8), LINE)
    memory = mmap.mmap(-1, size + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system that was built without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return _aligned(torch.frombuffer(memory, dtype=torch.uint8), LARGE_PAGE)


def _aligned(memory: Tensor, edge: int) -> Tensor:
    """The memory from its first address on that is a multiple of `edge`."""
    return memory[-memory.data_ptr() % edge :]
