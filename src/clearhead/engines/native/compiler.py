"""Compile the C sources once, with the machine's compiler or one installed by pip, and keep the library in the cache.

The name of the library holds a hash of everything it depends on: the source, the compiler and the processor.
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
    attempts = (_open(path) for threads in (("-fopenmp",), ()) if _compile(_source(), path, threads))
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
    depends_on = "\0".join([_source(), *FLAGS, _compiler_version(compiler[0]), _processor()])
    name = hashlib.sha256(depends_on.encode()).hexdigest()[:20]
    return cache_folder("engines") / f"step-{name}.so"


def _source() -> str:
    """All files as one: search.c uses the functions of step.c."""
    return "\n".join(files("clearhead.engines.native").joinpath(name).read_text(encoding="utf-8") for name in SOURCES)


def _compiler() -> list[str] | None:
    """The command of `$CC`, of the usual names, or of the package `ziglang`."""
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    for name in names:
        if name and (path := shutil.which(name)):
            return [path]
    package = find_spec("ziglang")
    zig = None if package is None or package.origin is None else Path(package.origin).with_name("zig")
    return [str(zig), "cc"] if zig is not None and zig.exists() else None


def _compiler_version(compiler: str) -> str:
    """Path, size and date: `--version` would take longer than loading the library."""
    status = Path(compiler).stat()
    return f"{compiler} {status.st_size} {status.st_mtime_ns}"


def _processor() -> str:
    """The instruction sets that `-march=native` depends on."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor()
    lines = information.read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _compile(source: str, path: Path, more: tuple[str, ...]) -> bool:
    """Compile to a temporary name, then rename: two processes may do it at once. Return whether it succeeded."""
    compiler = _compiler()
    assert compiler is not None
    temporary = path.with_suffix(f".{os.getpid()}")
    command = [*compiler, *FLAGS, *more, "-x", "c", "-", "-o", str(temporary), "-lm"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, input=source, text=True, capture_output=True, timeout=TIMEOUT, check=False)
        if done.returncode == 0:
            temporary.replace(path)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
