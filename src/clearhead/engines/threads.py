"""The number of threads that makes a step fastest, found by trying. It changes the time only, never the result."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TRIALS = 4  # measurements of each number of threads, for each size of step


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Trial:
    """One measurement."""

    threads: int
    steps: int = 1  # that were made; set by whoever makes them


class ThreadChooser:
    """Tries one thread and all of them in turn for the first steps of each size; then the faster number stays.

    Now and then, ever more rarely, the other is tried again: the machine may have been busy for a moment.
    """

    def __init__(self, most: int | None = None):
        self.choices = sorted({1, cores() if most is None else most})
        self._seconds: dict[int, dict[int, deque[float]]] = defaultdict(self._no_measurements)
        self._used: Counter[int] = Counter()

    def _no_measurements(self) -> dict[int, deque[float]]:
        return {number: deque(maxlen=TRIALS) for number in self.choices}

    @contextmanager
    def choose(self, rows: int) -> Iterator[Trial]:
        """The number of threads for steps of this many rows; the body of the `with` is timed."""
        size = rows.bit_length()
        self._used[size] += 1
        trial = Trial(self.best(size))
        began = time.perf_counter()
        yield trial
        seconds = (time.perf_counter() - began) / trial.steps
        # The steps of a whole search are measured together: they count as two at most.
        self._seconds[size][trial.threads].extend([seconds] * min(2, trial.steps))

    def best(self, size: int) -> int:
        """The next number to try, or the one with the shortest recent time."""
        seconds, used = self._seconds[size], self._used[size]
        fewest = min(seconds, key=lambda number: len(seconds[number]))
        if len(seconds[fewest]) < TRIALS:
            return fewest
        fastest = min(seconds, key=lambda number: min(seconds[number]))
        others = [number for number in seconds if number != fastest]
        return others[0] if others and used & (used - 1) == 0 else fastest  # at 16, 32, 64, …
