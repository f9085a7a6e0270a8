"""Compile the C sources of `engines/native` into one library beside them: `python tools/build_native.py`.

The wheel and the editable install do the same (hatch_build.py). Each source is compiled once for every variant of the
processor; which of them is used is decided when the library is loaded. The compiler is `$CC`, that of the system, or
the one in the package `ziglang`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).parents[1] / "src" / "clearhead" / "engines" / "native"
ONCE = ("fields.c", "threads.c", "variant.c")  # the same for every processor
FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-missing-field-initializers"),
    *("-Wno-unknown-pragmas", "-Wno-psabi"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),  # sums in any order
)
AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2")
AVX512 = (*AVX2, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx512vnni")
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {  # of each machine, and their flags: what variant.c looks for
    "x86_64": {"portable": (), "avx2": AVX2, "avx512": AVX512},
    "aarch64": {"neon": ()},
}
THREADS = () if sys.platform == "win32" else ("-pthread",)
SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".native.so")  # a mere .so looks like a Python module


class CompileError(Exception):
    """There is no compiler, or it refused a source."""


def find_compiler() -> list[str] | None:
    """The command of `$CC`, of the system's compiler, or of the package `ziglang`; None without any."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return [path]
    package = find_spec("ziglang")
    if package is None or package.origin is None:
        return None
    zig = Path(package.origin).with_name("zig.exe" if sys.platform == "win32" else "zig")
    return [str(zig), "cc"] if zig.exists() else None


def source_hash(sources: Path = SOURCES) -> str:
    """Of the C files; `native/library.py` compares it with that of the files beside it."""
    files = sorted(sources.glob("*.[ch]"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _library_path(folder: Path = SOURCES) -> Path:
    return folder / f"libclearhead{SUFFIX}"


def is_built(folder: Path = SOURCES) -> bool:
    """Whether the library of these sources, flags and this machine is in a folder."""
    library = _library_path(folder)
    return library.exists() and _stamp().encode() in library.read_bytes()


def _stamp() -> str:
    made_of = "\0".join([source_hash(), Path(__file__).read_text(encoding="utf-8"), _machine()])
    return hashlib.sha256(made_of.encode()).hexdigest()


def _machine() -> str:
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def build(folder: Path = SOURCES) -> Path:
    """Compile the library into a folder, unless it is there; it replaces an older one when it is complete."""
    library = _library_path(folder)
    if is_built(folder):  # pip asks for it twice
        return library
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C compiler: install cc, gcc or clang, or pip install ziglang")
    variants = VARIANTS.get(_machine(), {"portable": ()})
    with TemporaryDirectory() as scratch:
        origin = (f'-DSOURCE_HASH="{source_hash()}"', f'-DBUILD_STAMP="{_stamp()}"')
        jobs = [[*origin, "-c", str(SOURCES / name), "-o", f"{scratch}/{name}.o"] for name in ONCE]
        for variant, flags in variants.items():
            for source in sorted(SOURCES.glob("*.c")):
                if source.name not in ONCE:
                    made = f"{scratch}/{source.name}.{variant}.o"
                    jobs.append([*flags, f"-DVARIANT={variant}", "-c", str(source), "-o", made])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda job: _run([*compiler, *FLAGS, *job]), jobs))
        objects = [job[-1] for job in jobs]
        linked = folder / f".libclearhead.{os.getpid()}{SUFFIX}"
        try:
            _run([*compiler, "-shared", *objects, "-o", str(linked), "-lm", *THREADS])
            return linked.replace(library)
        finally:
            linked.unlink(missing_ok=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{' '.join(command)}\n{done.stderr}")
    sys.stderr.write(done.stderr)


if __name__ == "__main__":
    try:
        print(build())
    except CompileError as problem:
        sys.exit(str(problem))
