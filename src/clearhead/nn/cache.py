"""Caches: keys and values of what a model has already read, so that the next token costs one step.

The caller owns the cache and passes it to every call; a layer asks it three things: at which position the new
tokens stand (`start`), all keys and values to look at (`extend`), and at which position those begin (`first`).

    cache = model.make_cache()
    logits = model(prompt, cache=cache)      # reads the prompt once
    logits = model(next_token, cache=cache)  # one step

    B rows, G key-value heads, S keys, D key size, V value size
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.errors import ShapeError

KeysValues = tuple[Tensor, Tensor]  # (B, G, S, D), (B, G, S, V)


class Cache(ABC):
    """What every cache can do; `start` counts the tokens it has seen, `first` is the position of its first key."""

    start: int = 0
    first: int = 0

    @abstractmethod
    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        """Take in the keys and values of some new tokens, and give all that these may look at."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: beams swap places, finished ones leave."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Memory held."""


class NoCache(Cache):
    """Remembers nothing: the whole sequence is read in one call."""

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:  # noqa: ARG002
        """Just what is new."""
        return project()

    def reorder(self, rows: Tensor) -> None:
        """There is nothing to reorder."""

    @property
    def bytes(self) -> int:
        """None."""
        return 0


class _Stored(Cache):
    """A cache with tensors."""

    keys: Tensor | None = None
    values: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)

    @property
    def bytes(self) -> int:
        """Memory of the tensors held."""
        return sum(x.numel() * x.element_size() for x in (self.keys, self.values) if x is not None)


class GrowingCache(_Stored):
    """Keeps everything, and grows with it."""

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        """All keys and values so far."""
        k, v = project()
        if self.keys is not None and self.values is not None:
            k, v = torch.cat((self.keys, k), dim=2), torch.cat((self.values, v), dim=2)
        self.keys, self.values, self.start = k, v, self.start + queries
        return k, v


class FixedCache(_Stored):
    """Takes its memory once, for `length` tokens, and writes in place."""

    def __init__(self, length: int):
        self.length = length

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        """A view of the part that is filled."""
        k, v = project()
        end = self.start + queries
        if end > self.length:
            raise ShapeError(f"the cache holds {self.length} tokens and {end} are needed; make it longer")
        if self.keys is None or self.values is None:
            self.keys, self.values = (x.new_zeros(*x.shape[:2], self.length, x.size(3)) for x in (k, v))
        self.keys[:, :, self.start : end], self.values[:, :, self.start : end] = k, v
        self.start = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class WindowCache(_Stored):
    """Keeps the last `window` tokens, so its memory stays the same however long the text becomes."""

    def __init__(self, window: int):
        self.window = window

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        """The kept keys and values, then the new ones."""
        k, v = project()
        self.start += queries
        if self.keys is not None and self.values is not None:
            k, v = torch.cat((self.keys, k), dim=2), torch.cat((self.values, v), dim=2)
        self.first = self.start - k.size(2)
        self.keys, self.values = k[:, :, -self.window :].clone(), v[:, :, -self.window :].clone()
        return k, v


class MemoryCache(_Stored):
    """For cross-attention: the keys and values of the memory are computed once, at the first step."""

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        """The memory's keys and values, whatever the step; only the queries move on."""
        self.start += queries
        if self.keys is None or self.values is None:
            self.keys, self.values = project()
        return self.keys, self.values
