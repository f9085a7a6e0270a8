"""How many threads make a step fastest: found by trying. The answer does not depend on it, only the time."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TRIALS = 4  # of each number, for each size of step


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Trial:
    """Work with so many threads."""

    threads: int
    steps: int = 1  # that the work turned out to be


class Threads:
    """The first steps of each size are made with one thread and with all in turn; then the faster number stays.

    Now and then, ever more seldom, the other is tried again: a machine may have had a slow moment.
    """

    def __init__(self, most: int | None = None):
        self.choices = sorted({1, cores() if most is None else most})
        self._taken: dict[int, dict[int, deque[float]]] = defaultdict(self._nothing)
        self._used: Counter[int] = Counter()

    def _nothing(self) -> dict[int, deque[float]]:
        """The last times of each number."""
        return {number: deque(maxlen=TRIALS) for number in self.choices}

    @contextmanager
    def chosen(self, rows: int) -> Iterator[Trial]:
        """The number of threads for steps of so many rows; what is within is timed."""
        size = rows.bit_length()
        self._used[size] += 1
        trial = Trial(self.best(size))
        began = time.perf_counter()
        yield trial
        taken = (time.perf_counter() - began) / trial.steps
        # Of a whole search no two steps are tried at the same moment: it counts as two at most.
        self._taken[size][trial.threads].extend([taken] * min(2, trial.steps))

    def best(self, size: int) -> int:
        """The next one to try, or the one whose fastest try of late was fastest."""
        taken, used = self._taken[size], self._used[size]
        fewest = min(taken, key=lambda number: len(taken[number]))
        if len(taken[fewest]) < TRIALS:
            return fewest
        fastest = min(taken, key=lambda number: min(taken[number]))
        others = [number for number in taken if number != fastest]
        return others[0] if others and used & (used - 1) == 0 else fastest  # at 16, 32, 64, …
