"""Batches: examples of similar length, as many as fit a budget of padded tokens, in an order that can be resumed.

    lengths = np.array([[7, 9], [3, 2], ...])            # tokens of each example on each side, special ones included
    batches = Batches(lengths, budget=4096, seed=1)
    for indices in batches:                              # one epoch; the next loop is the next epoch
        source = pad([sources[i] for i in indices], tokenizer.pad)
    state = batches.state()                              # small, JSON: the position of the next batch
    batches.restore(state)                               # continues exactly there, or raises an error

The order is a pure function of the seed, the epoch and the rank of the process (from 0 to `world` - 1).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.errors import DataError

# N examples, S sides (source and target, or the text alone), B examples in a batch, T tokens in the longest of them

# ---- Order


def generator(seed: int, epoch: int) -> np.random.Generator:
    """The random generator of one epoch, the same in every process."""
    return np.random.default_rng([seed, epoch])


def share(items: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """The items of one rank: every world-th, equally many for each rank, and none for two of them.

    The remainder, at most world - 1 items at the end, is left out in this epoch. Items come shuffled, so it is a
    different one in the next.
    """
    if not 0 <= rank < world:
        raise DataError(f"rank={rank} is not one of the world={world} processes, which are counted from 0")
    return items[: len(items) // world * world][rank::world]


class Cursor(ABC):
    """A position in an endless sequence of epochs, which can be saved and restored; a subclass defines the batches."""

    epoch: int = 0
    position: int = 0  # of the next batch within the epoch
    rows: slice = slice(None)  # of each batch, those that are read: a process may need only some

    def __init__(self, identity: Mapping[str, int | str]):
        """`identity` is everything that the order depends on; `restore` rejects a state with another identity."""
        self._identity = dict(identity)

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """The batches of this process in order: a pure function of the epoch."""

    @abstractmethod
    def read(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """The array that the caller gets for one entry of the plan."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of batches of this process in an epoch, the same in every epoch."""

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        for batch in self.plan(self.epoch)[self.position :]:
            # The position advances before the batch is yielded: a state saved after using it does not repeat it.
            self.position += 1
            if self.position == len(self):
                self.epoch, self.position = self.epoch + 1, 0
            yield self.read(batch[self.rows])

    def forever(self) -> Iterator[NDArray[np.int64]]:
        """Yield batches of epoch after epoch without end."""
        while True:
            yield from self

    def state(self) -> dict[str, int | str]:
        """The position of the next batch, the same for every rank."""
        return {**self._identity, "epoch": self.epoch, "position": self.position}

    def restore(self, state: Mapping[str, int | str]) -> None:
        """Continue from a position that `state` returned."""
        for name, mine in self._identity.items():
            if state.get(name) != mine:
                raise DataError(
                    f"cannot resume: the state has {name}={state.get(name)} and this run has {name}={mine}; "
                    "continue with the same data and settings"
                )
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not isinstance(position, int) or epoch < 0 or not 0 <= position < len(self):
            raise DataError(
                f"cannot resume: epoch={epoch}, position={position} is not a position among {len(self)} batches"
            )
        self.epoch, self.position = epoch, position


# ---- Batches


class Batches(Cursor):
    """The indices of the examples of each batch, (B,), in a new order each epoch.

    Padded to its longest example, the longer side of a batch has at most `budget` cells; an example that is longer
    than the budget is a batch of its own. In each epoch every example is visited once by one rank, except those of
    the at most world - 1 batches that the ranks cannot share equally.

    Examples are sorted by their longer side and then along a snake: from those whose first side is the longer to those
    whose last side is, and back again for the next length. So neighbours differ little on both sides, and little is
    padded.
    """

    def __init__(self, lengths: ArrayLike, *, budget: int, seed: int, rank: int = 0, world: int = 1):
        sides = length_table(lengths)  # (N, S)
        super().__init__({"seed": seed, "world": world, "budget": budget, "data": fingerprint(sides)})
        self._seed, self._rank, self._world = seed, rank, world
        self._longest = np.maximum(sides.max(axis=1), 1)  # (N,)
        self._snake = (sides[:, 0] - sides[:, -1]) * np.where(self._longest % 2, 1, -1)  # (N,)
        self._cuts = cut_points(np.sort(self._longest), budget)  # sorted lengths are the same in every epoch
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
        return batch


def length_table(lengths: ArrayLike) -> NDArray[np.int64]:
    """Lengths as (N, S), from one number for each example or one for each of its sides."""
    sides = np.asarray(lengths, dtype=np.int64)
    if not len(sides):
        raise DataError("there are no examples to batch")
    return sides.reshape(len(sides), -1)


def cut_points(longest: NDArray[np.int64], budget: int) -> list[int]:
    """Where ascending lengths, (N,), are cut so that count × longest is within the budget."""
    found, start = [], 0
    for index, length in enumerate(longest.tolist()):
        if index > start and (index + 1 - start) * length > budget:
            found.append(index)
            start = index
    return found


def padding_share(lengths: ArrayLike, batches: Iterable[NDArray[np.int64]]) -> float:
    """The share of padding among the cells of all sides."""
    sides = length_table(lengths)  # (N, S)
    filled = cells = 0
    for batch in batches:
        filled += int(sides[batch].sum())
        cells += len(batch) * int(sides[batch].max(axis=0).sum())
    return 1 - filled / cells if cells else 0.0


def fingerprint(sides: NDArray[np.int64]) -> str:
    """A hash of the lengths."""
    return hashlib.sha256(repr(sides.shape).encode() + sides.tobytes()).hexdigest()[:16]


# ---- Padding


def pad(
    sequences: Sequence[Sequence[int] | NDArray[np.integer]],
    pad_id: int,
    start: int | None = None,
    stop: int | None = None,
) -> NDArray[np.int64]:
    """Sequences of different lengths as rows, (B, T): start, ids, stop, and padding up to the longest.

    >>> pad([[7, 8, 9], [7]], pad_id=0, stop=3)
    array([[7, 8, 9, 3],
           [7, 3, 0, 0]])
    """
    before, after = int(start is not None), int(stop is not None)
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))  # (B,)
    rows = np.full((len(sequences), lengths.max(initial=0) + before + after), pad_id, np.int64)  # (B, T)
    place = np.arange(rows.shape[1]) - before  # (T,) the position of each column in its sequence
    inside = (place >= 0) & (place < lengths[:, None])  # (B, T)
    rows[inside] = np.fromiter(chain.from_iterable(sequences), np.int64, lengths.sum())
    if start is not None:
        rows[:, 0] = start
    if stop is not None:
        rows[np.arange(len(sequences)), lengths + before] = stop
    return rows
