"""How processes share an evaluation: each takes every so many-th item, and sums and lists are put together again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, TypeVar

from torch import Tensor

Item = TypeVar("Item")


class Share:
    """The share of one process; this one is alone, and its share is everything."""

    rank: int = 0
    world_size: int = 1

    def mine(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items of this process: every `world_size`-th, beginning with `rank`."""
        return islice(items, self.rank, None, self.world_size)

    def merge(self, mine: Sequence[Item]) -> list[Item]:
        """The results of all processes, in the order of the items that `mine` shared out."""
        rest = object()
        rows: Iterable[tuple[Any, ...]] = zip_longest(*self.gather(list(mine)), fillvalue=rest)
        return [result for row in rows for result in row if result is not rest]

    def gather(self, mine: Item) -> list[Item]:
        """What each process gives, in the order of the ranks."""
        return [mine]

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Σ over the processes, in place."""
        return tensor


ALONE = Share()
