"""The library of native code: built with the package, and called with the fastest number of threads.

It holds the same functions for several kinds of processor, its variants. `$CLEARHEAD_CPU` chooses one of them by name
instead of the fastest that this processor can run.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from clearhead.decode.pool import is_beside_others
from clearhead.errors import ConfigError, nearest

FOLDER = Path(__file__).parent
SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".native.so")  # a mere .so looks like a Python module
VARIANTS = ("portable", "avx2", "avx512", "neon")  # on x86-64, each needs more of the processor than the one before
BUILD = "build it with `python tools/build_native.py`, or install the package again"


class Library:
    """The functions of one variant, by the names that they have in C: `library.clearhead_step`."""

    def __init__(self, code: ctypes.CDLL, variant: str):
        self._code, self.variant = code, variant

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._code, f"{name}_{self.variant}")
        setattr(self, name, function)  # found without this method from now on
        return function


def load_library() -> Library | None:
    """The variant of `$CLEARHEAD_CPU`, or the fastest for this processor; None without a library that fits."""
    code = _code(FOLDER / f"libclearhead{SUFFIX}")
    return None if isinstance(code, str) else _variant(code, os.environ.get("CLEARHEAD_CPU", ""))


def library_problem() -> str | None:
    """Why `load_library` gives None, and what to do."""
    code = _code(FOLDER / f"libclearhead{SUFFIX}")
    return code if isinstance(code, str) else None


@cache
def _code(path: Path) -> ctypes.CDLL | str:
    """The library in a file, or what is wrong with it."""
    if not path.exists():
        return f"there is no native library {path}; {BUILD}"
    try:
        code = ctypes.CDLL(str(path))
    except OSError as problem:
        return f"the native library cannot be loaded ({problem}); {BUILD}"
    if _text(code.clearhead_source_hash) != source_hash(path.parent):
        return f"the native library {path} was built from other sources; {BUILD}"
    return code


@cache
def _variant(code: ctypes.CDLL, asked: str) -> Library:
    best = _text(code.clearhead_best_variant)
    if not asked:
        return Library(code, best)
    if asked not in VARIANTS:
        raise ConfigError(f"CLEARHEAD_CPU={asked} is not a variant of the native code; {nearest(asked, VARIANTS)}")
    if not hasattr(code, f"clearhead_step_{asked}") or VARIANTS.index(asked) > VARIANTS.index(best):
        raise ConfigError(f"CLEARHEAD_CPU={asked}: this processor cannot run it; the best that it can is {best}")
    return Library(code, asked)


def source_hash(folder: Path) -> str:
    """Of the C files in a folder; tools/build_native.py writes it into the library."""
    files = sorted(folder.glob("*.[ch]"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _text(function: Any) -> str:
    function.restype = ctypes.c_char_p
    text: bytes = function()
    return text.decode()


# --- threads ---

TRIALS = 4  # measurements of each number of threads in a row, for each size of step
PERIOD = 128  # steps of a size after which the other number is tried again; at first sooner
REMEMBERED = 64  # steps with the number in use: single slow ones happen, and count by what they cost


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Trial:
    """One measurement."""

    threads: int
    steps: int = 1  # that were made; set by whoever makes them


class ThreadChooser:
    """Finds the number of threads that makes a step fastest, by trying. It changes the time only, never the result.

    Each number is tried for some steps of each size, then the faster one stays. Now and then the other is tried again
    for as many: the machine may have been busy for a moment, and threads that sleep are slow to begin. Trials count by
    their median; what is then used counts by the mean of its times, since a thread that sometimes has no processor
    makes single steps slow.
    """

    def __init__(self, most: int | None = None):
        self.choices = sorted({1, cores() if most is None else most})
        self._sizes: dict[int, _Size] = defaultdict(lambda: _Size(self.choices))

    @contextmanager
    def choose(self, rows: int) -> Iterator[Trial]:
        """The number of threads for steps of this many rows; the body of the `with` is timed."""
        if is_beside_others():
            yield Trial(1)
            return
        size = self._sizes[rows.bit_length()]
        trial = Trial(size.next())
        began = time.perf_counter()
        yield trial
        seconds = (time.perf_counter() - began) / trial.steps
        # The steps of a whole search are measured together: they count as two at most.
        size.measured(trial.threads, seconds, min(2, trial.steps))


class _Size:
    """The choice for steps of one size."""

    def __init__(self, choices: list[int]):
        self.choices, self.used = choices, 0
        self.times: dict[int, _Time] = {}  # of each number that was tried
        self.trials: list[float] = []  # of the number that is being tried
        self.trying: int | None = choices[0]

    def next(self) -> int:
        """The next number to use, or to try."""
        self.used += 1
        fastest = min(self.times, key=lambda number: self.times[number].mean) if self.times else self.choices[0]
        if self.trying is None and self.used == self._begin():
            self.trying = next((number for number in self.choices if number != fastest), None)
        return fastest if self.trying is None else self.trying

    def _begin(self) -> int:
        """When the other number is tried again: at step 16, 32, …, PERIOD, 2 PERIOD, …"""
        return self.used - self.used % PERIOD if self.used > PERIOD else 1 << self.used.bit_length() - 1

    def measured(self, number: int, seconds: float, steps: int) -> None:
        """Take note of the seconds of each of some steps."""
        if number != self.trying:
            self.times[number].add(seconds, steps)
            return
        self.trials += [seconds] * steps
        if len(self.trials) >= TRIALS:
            self.times[number] = _Time(median(self.trials))
            self.trials = []
            self.trying = next((each for each in self.choices if each not in self.times), None)


@dataclass
class _Time:
    """The mean time of a step; of the last ones, as they become many."""

    mean: float
    steps: int = 1

    def add(self, seconds: float, steps: int) -> None:
        self.steps = min(self.steps + steps, REMEMBERED)
        self.mean += (seconds - self.mean) * steps / self.steps
