"""In which order examples are visited: a pure function of the seed, the epoch, and which of how many processes asks.

Nothing here remembers anything, so a run that stops can go on from (seed, epoch, position) alone. Processes are
numbered by `rank`, from 0 to `world` - 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError


def generator(seed: int, epoch: int) -> np.random.Generator:
    """The source of every random choice of one epoch, the same in every process."""
    return np.random.default_rng([seed, epoch])


def share(items: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """Every world-th item, from the rank-th on: the same number for each rank, and no item for two.

    What does not divide, at most world - 1 items at the end, is left out for this epoch. Items come shuffled, so it
    is something else that is left out in the next.
    """
    if not 0 <= rank < world:
        raise DataError(f"rank={rank} is not one of the world={world} processes; they are counted from 0")
    return items[: len(items) // world * world][rank::world]
