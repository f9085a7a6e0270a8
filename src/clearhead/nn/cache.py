"""Caches: the keys and values of the tokens so far, so that the next token costs one step.

The caller owns the cache and passes it to every call. A layer reads three things from it: the position of the new
tokens (`start`), all keys and values they may see (`extend`), and the position of the first of those (`first`).

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
    """The interface of all caches; `start` counts the tokens so far, `first` is the position of the first key."""

    start: int = 0
    first: int = 0

    @abstractmethod
    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        """Add the keys and values that `project` computes of the new tokens; returns all that these may see."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: beams swap places, finished rows leave."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Memory in use."""


class NoCache(Cache):
    """Stores nothing: the whole sequence is read in one call."""

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        return project()

    def reorder(self, rows: Tensor) -> None:
        pass

    @property
    def bytes(self) -> int:
        return 0


class _TensorCache(Cache):
    """A cache that stores keys and values."""

    keys: Tensor | None = None
    values: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in (self.keys, self.values) if x is not None)


class GrowingCache(_TensorCache):
    """Keeps all tokens, and grows with every call."""

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        k, v = project()
        if self.keys is not None and self.values is not None:
            k, v = torch.cat((self.keys, k), dim=2), torch.cat((self.values, v), dim=2)
        self.keys, self.values, self.start = k, v, self.start + queries
        return k, v


class FixedCache(_TensorCache):
    """Allocates memory for `length` tokens once, and writes in place."""

    def __init__(self, length: int):
        self.length = length

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        k, v = project()
        end = self.start + queries
        if end > self.length:
            raise ShapeError(f"the cache holds {self.length} tokens and {end} are needed; make it longer")
        if self.keys is None or self.values is None:
            self.keys, self.values = (x.new_zeros(*x.shape[:2], self.length, x.size(3)) for x in (k, v))
        self.keys[:, :, self.start : end], self.values[:, :, self.start : end] = k, v
        self.start = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class WindowCache(_TensorCache):
    """Keeps the last `window` tokens: its memory does not grow with the text."""

    def __init__(self, window: int):
        self.window = window

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        k, v = project()
        self.start += queries
        if self.keys is not None and self.values is not None:
            k, v = torch.cat((self.keys, k), dim=2), torch.cat((self.values, v), dim=2)
        self.first = self.start - k.size(2)
        self.keys, self.values = k[:, :, -self.window :].clone(), v[:, :, -self.window :].clone()
        return k, v


class MemoryCache(_TensorCache):
    """For cross-attention: the keys and values of the memory are computed once, at the first step."""

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        """The same keys and values at every step; only the position of the queries advances."""
        self.start += queries
        if self.keys is None or self.values is None:
            self.keys, self.values = project()
        return self.keys, self.values
