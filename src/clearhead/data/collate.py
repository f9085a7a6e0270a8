"""Sequences of different lengths -> one array."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

# B sequences, T tokens in the longest of them


def pad(
    sequences: Sequence[Sequence[int] | NDArray[np.integer]],
    pad_id: int,
    start: int | None = None,
    stop: int | None = None,
) -> NDArray[np.int64]:
    """One row for each sequence, (B, T): its start, its ids, its stop, and padding up to the longest.

    >>> pad([[7, 8, 9], [7]], pad_id=0, stop=3)
    array([[7, 8, 9, 3],
           [7, 3, 0, 0]])
    """
    before, after = int(start is not None), int(stop is not None)
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))  # (B,)
    rows = np.full((len(sequences), lengths.max(initial=0) + before + after), pad_id, np.int64)  # (B, T)
    place = np.arange(rows.shape[1]) - before  # (T,) where in its sequence each column is
    inside = (place >= 0) & (place < lengths[:, None])  # (B, T)
    rows[inside] = np.fromiter(chain.from_iterable(sequences), np.int64, lengths.sum())
    if start is not None:
        rows[:, 0] = start
    if stop is not None:
        rows[np.arange(len(sequences)), lengths + before] = stop
    return rows
