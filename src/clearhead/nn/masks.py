"""Masks: which keys a query may see.

A mask is boolean, `True` = may be seen, and broadcasts to (B, T, S). The lecture's look-ahead matrix L (0 where
visible, -inf where not) is `additive_mask(causal_mask(T))`.

    B batch, T queries, S keys

Long sequences cannot afford a T × S table, so the layers take a `Mask`: a rule that writes out only the rows that
are needed. A plain boolean tensor is accepted wherever a `Mask` is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ShapeError


def causal_mask(queries: int, keys: int | None = None, *, device: torch.device | str | None = None) -> Tensor:
    """(T, S): query i sees keys 0 to i. With more keys than queries, the queries are the last positions."""
    keys = queries if keys is None else keys
    return Mask(causal=True).table_of(queries, keys, offset=keys - queries, device=device)


def window_mask(queries: int, window: int, *, device: torch.device | str | None = None) -> Tensor:
    """(T, T): position i sees the positions less than `window` away, itself included."""
    return Mask(window=window).table_of(queries, queries, device=device)


def prefix_mask(prefix: int, length: int, device: torch.device | str | None = None) -> Tensor:
    """(N + T, N + T): the first N see each other, the rest see those and all positions before them."""
    visible = causal_mask(prefix + length, device=device)
    visible[:, :prefix] = True
    return visible


def padding_mask(ids: Tensor, pad: int = 0) -> Tensor:
    """(B, S) ids -> (B, 1, S): real tokens are visible to every query, padding to none."""
    return (ids != pad).unsqueeze(-2)


def length_mask(lengths: Tensor, longest: int | None = None) -> Tensor:
    """(B,) lengths -> (B, 1, S): the first `length` keys of each row are visible."""
    longest = int(lengths.max()) if longest is None else longest
    return (torch.arange(longest, device=lengths.device) < lengths.unsqueeze(-1)).unsqueeze(-2)


def additive_mask(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The mask as the lectures add it to the scores: 0 where visible, -inf where not."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


@dataclass(frozen=True, eq=False)
class Mask:
    """A key is visible if it is not later (causal), within the `window`, and True in the `table`, as far as given."""

    causal: bool = False
    window: int | None = None
    table: Tensor | None = None  # (T or 1, S or 1) or (B, T or 1, S or 1)

    @staticmethod
    def of(mask: Mask | Tensor | None) -> Mask:
        """A mask from a rule, a boolean tensor or None (all visible)."""
        return mask if isinstance(mask, Mask) else Mask(table=mask)

    def __and__(self, other: Mask | Tensor) -> Mask:
        """Visible in both."""
        other = Mask.of(other)
        windows = [window for window in (self.window, other.window) if window is not None]
        tables = [table for table in (self.table, other.table) if table is not None]
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            table=tables[0] & tables[1] if len(tables) == 2 else tables[0] if tables else None,
        )

    def over(self, keys: int) -> Mask:
        """The mask of the last keys only: a cache of fixed size has dropped the earlier ones."""
        if self.table is None or self.table.size(-1) in (1, keys):
            return self
        if self.table.size(-1) < keys:
            raise ShapeError(f"the mask covers {self.table.size(-1)} keys and there are {keys}")
        return Mask(self.causal, self.window, self.table[..., -keys:])

    def within(self, window: int | None) -> Mask:
        """The mask of a layer that sees less far than the others."""
        return self if window is None else self & Mask(window=window)

    @property
    def is_only_causal(self) -> bool:
        return self.causal and self.window is None and self.table is None

    def reach(self, first: int, last: int, keys: int, offset: int = 0) -> tuple[int, int]:
        """The span of keys that queries first..last-1 can see at all; query i stands at key i + offset."""
        low, high = 0, keys
        if self.window is not None:
            low = max(low, first + offset - self.window + 1)
            high = min(high, last + offset + self.window - 1)
        if self.causal:
            high = min(high, last + offset)
        return min(low, keys), max(high, min(low, keys))

    def rows(self, first: int, last: int, low: int, high: int, offset: int, device: torch.device) -> Tensor | None:
        """(…, last - first, high - low): the table for some queries and keys; None where all is visible."""
        visible = self._cut(first, last, low, high)
        if self.causal and high - 1 > first + offset:
            visible = _both(visible, self._gap(first, last, low, high, offset, device) >= 0)
        if self.window is not None:
            visible = _both(visible, self._gap(first, last, low, high, offset, device).abs() < self.window)
        return visible

    def table_of(self, queries: int, keys: int, offset: int = 0, device: torch.device | str | None = None) -> Tensor:
        """The whole table, (T, S) or (B, T, S)."""
        device = torch.device("cpu" if device is None else device)
        rows = self.rows(0, queries, 0, keys, offset, device)
        return torch.ones(queries, keys, dtype=torch.bool, device=device) if rows is None else rows

    def _gap(self, first: int, last: int, low: int, high: int, offset: int, device: torch.device) -> Tensor:
        """How far each key lies behind its query: (last - first, high - low)."""
        query = torch.arange(first + offset, last + offset, device=device)
        key = torch.arange(low, high, device=device)
        return query.unsqueeze(-1) - key

    def _cut(self, first: int, last: int, low: int, high: int) -> Tensor | None:
        """The part of the table for some queries and keys; one row holds for every query, one column for every key."""
        if self.table is None:
            return None
        rows = self.table if self.table.size(-2) == 1 else self.table[..., first:last, :]
        return rows if self.table.size(-1) == 1 else rows[..., low:high]


def _both(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b
