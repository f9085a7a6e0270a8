"""Native code: compiled once, by the machine's own C compiler or by one that pip brought, and kept in the user's cache.

The name of what is kept holds a hash of all that it depends on: the source, the compiler and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from contextlib import suppress
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
PATIENCE = 120  # seconds for a compiler


def kept() -> ctypes.CDLL | None:
    """The native code, if it has been compiled before; costs nothing else."""
    path = _path()
    return _opened(path) if path is not None and path.exists() else None


@cache
def native() -> ctypes.CDLL | None:
    """The native code, compiled if need be; none where there is no compiler, or no place to keep it."""
    path = _path()
    if path is None:
        return None
    known = kept()
    attempts = (_opened(path) for threads in (("-fopenmp",), ()) if _compile(_source(), path, threads))
    return known or next((library for library in attempts if library is not None), None)


def _opened(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # made for another machine that shares the folder, or with threads that are not there
        return None


@cache
def _path() -> Path | None:
    """Where the compiled code belongs; none without a compiler."""
    compiler = _compiler()
    if compiler is None:
        return None
    known = "\0".join([_source(), *FLAGS, _version(compiler[0]), _processor()])
    name = hashlib.sha256(known.encode()).hexdigest()[:20]
    return cache_folder("engines") / f"step-{name}.so"


def _source() -> str:
    """All files as one: a step, then the searches that are made of steps."""
    return "\n".join(files("clearhead.engines").joinpath(name).read_text(encoding="utf-8") for name in SOURCES)


def _compiler() -> list[str] | None:
    """The command of `$CC`, of the usual names, or of the compiler that the package `ziglang` brings."""
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    for name in names:
        if name and (path := shutil.which(name)):
            return [path]
    package = find_spec("ziglang")
    brought = None if package is None or package.origin is None else Path(package.origin).with_name("zig")
    return [str(brought), "cc"] if brought is not None and brought.exists() else None


def _version(compiler: str) -> str:
    """The compiler by path, size and date: asking it would take longer than loading the code."""
    known = Path(compiler).stat()
    return f"{compiler} {known.st_size} {known.st_mtime_ns}"


def _processor() -> str:
    """What the code is made for."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor()
    lines = information.read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _compile(source: str, path: Path, more: tuple[str, ...]) -> bool:
    """Compile to a temporary name, then rename: two processes may do it at once. Whether it went well."""
    compiler = _compiler()
    assert compiler is not None
    temporary = path.with_suffix(f".{os.getpid()}")
    command = [*compiler, *FLAGS, *more, "-x", "c", "-", "-o", str(temporary), "-lm"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, input=source, text=True, capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode == 0:
            temporary.replace(path)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
