"""The library of native code: compiled once on this machine, and called with the fastest number of threads.

The C sources are compiled with the machine's compiler or one installed by pip. The library is kept in the cache; its
name holds a hash of everything that it depends on: the source, the compiler and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from clearhead.files import cache_folder

FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),  # sums in any order
)
SOURCES = ("step.c", "search.c")
TIMEOUT = 120  # seconds for the compiler


def load_cached() -> ctypes.CDLL | None:
    """The library, if it has been compiled before; never starts a compiler."""
    path = _library_path()
    return _open(path) if path is not None and path.exists() else None


@cache
def load_library() -> ctypes.CDLL | None:
    """The library, compiled if necessary; None without a compiler or a writable cache."""
    path = _library_path()
    if path is None:
        return None
    cached = load_cached()
    attempts = (_open(path) for threads in (("-fopenmp",), ()) if _compile(path, *threads))
    return cached or next((library for library in attempts if library is not None), None)


def _open(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # compiled on another machine that shares the folder, or OpenMP is not installed here
        return None


@cache
def _library_path() -> Path | None:
    """Where the library belongs; None without a compiler."""
    compiler = _compiler()
    if compiler is None:
        return None
    status = Path(compiler[0]).stat()  # `--version` would take longer than loading the library
    version = f"{compiler[0]} {status.st_size} {status.st_mtime_ns}"
    name = hashlib.sha256("\0".join([_source(), *FLAGS, version, _processor()]).encode()).hexdigest()[:20]
    return cache_folder("engines") / f"step-{name}.so"


def _source() -> str:
    """All files as one: search.c uses the functions of step.c."""
    return "\n".join(files("clearhead.engines.native").joinpath(name).read_text(encoding="utf-8") for name in SOURCES)


def _compiler() -> list[str] | None:
    """The command of `$CC`, of the usual names, or of the package `ziglang`."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return [path]
    package = find_spec("ziglang")
    zig = None if package is None or package.origin is None else Path(package.origin).with_name("zig")
    return [str(zig), "cc"] if zig is not None and zig.exists() else None


def _processor() -> str:
    """The instruction sets that `-march=native` depends on."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor()
    lines = information.read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _compile(path: Path, *more: str) -> bool:
    """Compile to a temporary name, then rename: two processes may do it at once. Return whether it succeeded."""
    compiler = _compiler()
    assert compiler is not None
    temporary = path.with_suffix(f".{os.getpid()}")
    command = [*compiler, *FLAGS, *more, "-x", "c", "-", "-o", str(temporary), "-lm"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, input=_source(), text=True, capture_output=True, timeout=TIMEOUT, check=False)
        if done.returncode == 0:
            temporary.replace(path)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


# --- threads ---

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
    """Finds the number of threads that makes a step fastest, by trying. It changes the time only, never the result.

    One thread and all of them take turns for the first steps of each size; then the faster number stays. Now and then,
    ever more rarely, the other is tried again: the machine may have been busy for a moment.
    """

    def __init__(self, most: int | None = None):
        self.choices = sorted({1, cores() if most is None else most})
        self._seconds: dict[int, dict[int, deque[float]]] = defaultdict(  # of each size, for each number of threads
            lambda: {number: deque(maxlen=TRIALS) for number in self.choices}
        )
        self._used: Counter[int] = Counter()

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
