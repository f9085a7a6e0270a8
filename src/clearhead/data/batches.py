"""Batches of about equally long examples, as many as fit a budget of padded tokens.

    lengths = np.array([[7, 9], [3, 2], ...])            # tokens of each example on each side, special ones included
    for indices in Batches(lengths, budget=4096, seed=1):
        source = pad([sources[i] for i in indices], tokenizer.pad)

Examples are sorted by their longer side and then along a snake: from those whose first side is the longer to those
whose last side is, and back again for the next length. So neighbours differ little on both sides, and little is padded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.data.cursor import Cursor
from clearhead.data.order import generator, share
from clearhead.errors import DataError

# N examples, S sides (source and target, or the text alone), B examples in a batch


class Batches(Cursor):
    """The indices of the examples of each batch, (B,), over and over in a new order each epoch.

    Padded to its longest, the longer side of a batch has at most `budget` cells; an example that is longer than
    the budget alone is a batch alone. In each epoch every example is visited once by one rank, except those of the
    at most world - 1 batches that the ranks cannot share equally.
    """

    def __init__(self, lengths: ArrayLike, *, budget: int, seed: int, rank: int = 0, world: int = 1):
        sides = sides_of(lengths)  # (N, S)
        super().__init__({"seed": seed, "world": world, "budget": budget, "data": fingerprint(sides)})
        self._seed, self._rank, self._world = seed, rank, world
        self._longest = np.maximum(sides.max(axis=1), 1)  # (N,)
        self._snake = (sides[:, 0] - sides[:, -1]) * np.where(self._longest % 2, 1, -1)  # (N,)
        self._cuts = cuts(np.sort(self._longest), budget)  # sorted lengths are the same every epoch, so are the cuts
        self._count = len(share(np.arange(len(self._cuts) + 1), rank, world))
        if not self._count:
            raise DataError(
                f"{len(self._cuts) + 1} batches cannot be shared by {world} processes; lower budget={budget} tokens"
            )

    def __len__(self) -> int:
        return self._count

    def plan(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """Shuffle, sort, cut, shuffle the batches, and take this rank's share."""
        random = generator(self._seed, epoch)
        order = random.permutation(len(self._longest))  # (N,)
        order = order[np.lexsort((self._snake[order], self._longest[order]))]  # stable: equals stay shuffled
        batches = np.split(order, self._cuts)
        return [batches[i] for i in share(random.permutation(len(batches)), self._rank, self._world)]

    def read(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices themselves."""
        return batch


def sides_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Lengths as (N, S), whether one number was given for each example or one for each of its sides."""
    sides = np.asarray(lengths, dtype=np.int64)
    if not len(sides):
        raise DataError("there are no examples to make batches of")
    return sides.reshape(len(sides), -1)


def cuts(longest: NDArray[np.int64], budget: int) -> list[int]:
    """Where ascending lengths, (N,), are cut so that count × longest stays within the budget."""
    found, start = [], 0
    for index, length in enumerate(longest.tolist()):
        if index > start and (index + 1 - start) * length > budget:
            found.append(index)
            start = index
    return found


def padding(lengths: ArrayLike, batches: Iterable[NDArray[np.int64]]) -> float:
    """The share of all cells, on all sides together, that hold nothing but padding."""
    sides = sides_of(lengths)  # (N, S)
    filled = cells = 0
    for batch in batches:
        filled += int(sides[batch].sum())
        cells += len(batch) * int(sides[batch].max(axis=0).sum())
    return 1 - filled / cells if cells else 0.0


def fingerprint(sides: NDArray[np.int64]) -> str:
    """A short name for these lengths and no others."""
    return hashlib.sha256(repr(sides.shape).encode() + sides.tobytes()).hexdigest()[:16]
