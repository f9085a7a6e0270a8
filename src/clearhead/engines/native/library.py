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
from collections import Counter, defaultdict, deque
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
    for as many: the machine may have been busy for a moment, and threads that sleep are slow to begin.
    """

    def __init__(self, most: int | None = None):
        self.choices = sorted({1, cores() if most is None else most})
        self._seconds: dict[int, dict[int, deque[float]]] = defaultdict(  # of each size, for each number of threads
            lambda: {number: deque(maxlen=TRIALS) for number in self.choices}
        )
        self._used: Counter[int] = Counter()
        self._again: dict[int, int] = {}  # the number that is tried again, or was the last time, for each size

    @contextmanager
    def choose(self, rows: int) -> Iterator[Trial]:
        """The number of threads for steps of this many rows; the body of the `with` is timed."""
        if is_beside_others():
            yield Trial(1)
            return
        size = rows.bit_length()
        self._used[size] += 1
        trial = Trial(self.best(size))
        began = time.perf_counter()
        yield trial
        seconds = (time.perf_counter() - began) / trial.steps
        # The steps of a whole search are measured together: they count as two at most.
        self._seconds[size][trial.threads].extend([seconds] * min(2, trial.steps))

    def best(self, size: int) -> int:
        """The next number to try, or the one with the shortest recent times, of which the median counts."""
        seconds, used = self._seconds[size], self._used[size]
        for number in self.choices:
            if len(seconds[number]) < TRIALS:
                return number
        fastest, *others = sorted(self.choices, key=lambda number: median(seconds[number]))
        begin = used - used % PERIOD if used > PERIOD else 1 << used.bit_length() - 1  # 16, 32, …, PERIOD, 2 PERIOD, …
        if used == begin:
            self._again[size] = next(iter(others), fastest)
        return self._again.get(size, fastest) if used < begin + TRIALS else fastest
