"""The C unit test, compiled with AddressSanitizer and UBSan for each variant that this processor can run."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from tests.engines.native.test_library import variants

from clearhead.engines.native.library import FOLDER

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = {
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx512vnni"],
}
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compiled(program: Path, *arguments: str) -> Path:
    """Compile a program with the sanitizers."""
    assert COMPILER is not None
    command = [COMPILER, *SANITIZERS, *arguments, "-o", str(program), "-lm", "-pthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def run(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], check=False, capture_output=True, text=True, timeout=120)


def compile_and_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(compiled(folder / "program", *arguments))


@pytest.fixture(scope="module")
def sanitizers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where there is no compiler, or it has no sanitizers."""
    if COMPILER is None:
        pytest.skip("no C compiler on this machine")
    folder = tmp_path_factory.mktemp("sanitizers")
    (folder / "empty.c").write_text("int main(void) { return 0; }", encoding="utf-8")
    try:
        compile_and_run(folder, str(folder / "empty.c")).check_returncode()
    except subprocess.CalledProcessError:
        pytest.skip("the C compiler of this machine has no sanitizers")


# Compiling takes long: the variant that this processor uses, and the others with the slow tests; a program is compiled
# again when a source, this file or the compiler has changed.
VARIANTS = [*(pytest.param(each, marks=pytest.mark.slow) for each in variants()[:-1]), *variants()[-1:]]


PROGRAMS = {
    "kernels_test.c": ("step.c", "search.c", "threads.c"),
    "lm_test.c": ("lm.c", "threads.c"),
    "short_test.c": ("short.c",),
}


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of compiled programs: one for all runs of the tests, if pytest has a cache."""
    cache = getattr(request.config, "cache", None)
    return cache.mkdir("sanitizers") if cache else tmp_path_factory.mktemp("programs")


def contents(source: Path) -> str:
    """A hash of everything that is compiled into a program, and of the compiler."""
    assert COMPILER is not None
    version = subprocess.run([COMPILER, "--version"], check=True, capture_output=True).stdout
    files = (source, Path(__file__), *sorted(FOLDER.glob("*.[ch]")))
    return sha256(b"\0".join([version, *(file.read_bytes() for file in files)])).hexdigest()[:16]


@pytest.mark.usefixtures("sanitizers")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_native_code_reads_and_writes_only_its_memory(
    tmp_path: Path, programs: Path, program: str, variant: str
) -> None:
    source = Path(__file__).with_name(program)
    name = f"{source.stem}-{variant}"
    kept = programs / f"{name}-{contents(source)}"
    if not kept.exists():
        sources = (source, *(FOLDER / name for name in PROGRAMS[program]))
        flags = ("-std=gnu11", "-g", f"-DVARIANT={variant}", f"-I{FOLDER}", *FLAGS.get(variant, []))
        made = compiled(tmp_path / "program", *flags, *map(str, sources))
        for old in programs.glob(f"{name}-*"):
            old.unlink()
        shutil.move(made, kept)
    done = run(kept)
    assert done.returncode == 0, done.stderr
