"""The library of native code: compiled once on this machine, and called with the fastest number of threads.

The C sources are compiled with the machine's compiler or one installed by pip. The library is kept in the cache; its
name holds a hash of everything that it depends on (the source, the compiler and the processor), and a hash of its own
bytes: one that is not whole is compiled again. Whoever can write it can run code as its user, so it is opened only from
a folder that nobody else can change.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
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
    if path is None or not is_private(path.parent):
        return None
    return next(filter(None, map(_open, sorted(path.parent.glob(f"{path.stem}-*.so")))), None)


@cache
def load_library() -> ctypes.CDLL | None:
    """The library, compiled if necessary; None without a compiler or a folder of our own."""
    path = _library_path()
    if path is None:
        return None
    cached = load_cached()
    attempts = (_open(made) for threads in (("-fopenmp",), ()) if (made := _compile(path, *threads)))
    return cached or next((library for library in attempts if library is not None), None)


def _open(path: Path) -> ctypes.CDLL | None:
    """The library of a file that is whole and our own; None for any other, which is deleted if it is damaged."""
    try:
        if not _is_own(path.lstat()):
            return None
        if path.stem.rpartition("-")[2] != _hash(path.read_bytes()):
            path.unlink()
            return None
        return ctypes.CDLL(str(path))
    except OSError:  # compiled on another machine that shares the folder, or OpenMP is not installed here
        return None


def is_private(folder: Path) -> bool:
    """Whether nobody else, root apart, can change what is in a folder, or put another in its place."""
    if sys.platform == "win32":
        return True  # the user's profile is
    try:
        found = [path.lstat() for path in (folder, *Path(os.path.realpath(folder)).parents)]
    except OSError:
        return False
    # A sticky folder (/tmp) is everybody's, but nobody can rename what another has in it.
    return _is_own(found[0]) and all(_is_own(each) or each.st_mode & stat.S_ISVTX for each in found[1:])


def _is_own(status: os.stat_result) -> bool:
    """Whether a file or folder is this user's or root's, and nobody else's to write."""
    if sys.platform == "win32":
        return True
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not others_write and not stat.S_ISLNK(status.st_mode) and status.st_uid in (0, os.getuid())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


@cache
def _library_path() -> Path | None:
    """Where the library belongs, its name without the hash of its bytes; None without a compiler."""
    compiler = _compiler()
    if compiler is None:
        return None
    status = Path(compiler[0]).stat()  # `--version` would take longer than loading the library
    version = f"{compiler[0]} {status.st_size} {status.st_mtime_ns}"
    name = hashlib.sha256("\0".join([_source(), *FLAGS, version, _processor()]).encode()).hexdigest()[:20]
    return _folder() / f"step-{name}.so"


def _folder() -> Path:
    """The cache, or where others can write to it, a folder of our own below the temporary ones."""
    folder = cache_folder("engines")
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sys.platform != "win32" and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
    if not folder.is_dir() or is_private(folder):
        return folder
    own = Path(tempfile.gettempdir()) / f"clearhead-{os.getuid() if sys.platform != 'win32' else ''}"
    with suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
    return own


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


def _compile(path: Path, *more: str) -> Path | None:
    """Compile to a temporary name, then rename: two processes may do it at once. The file, or None if it failed."""
    compiler = _compiler()
    assert compiler is not None
    if not is_private(path.parent):
        return None
    temporary = path.with_suffix(f".{os.getpid()}")
    command = [*compiler, *FLAGS, *more, "-x", "c", "-", "-o", str(temporary), "-lm"]
    try:
        done = subprocess.run(command, input=_source(), text=True, capture_output=True, timeout=TIMEOUT, check=False)
        if done.returncode:
            return None
        temporary.chmod(0o700)
        made = path.with_stem(f"{path.stem}-{_hash(temporary.read_bytes())}")
        temporary.replace(made)
        return made
    except (OSError, subprocess.TimeoutExpired):
        return None
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
