"""The C unit test, compiled with AddressSanitizer and UBSan for each variant that this processor can run."""

from __future__ import annotations

import shutil
import subprocess
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


def compile_and_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Compile a program with the sanitizers and run it."""
    assert COMPILER is not None
    command = [COMPILER, *SANITIZERS, *arguments, "-o", str(folder / "program"), "-lm", "-pthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return subprocess.run([folder / "program"], check=False, capture_output=True, text=True, timeout=120)


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


# Compiling takes long: the variant that this processor uses, and the others with the slow tests.
VARIANTS = [*(pytest.param(each, marks=pytest.mark.slow) for each in variants()[:-1]), *variants()[-1:]]


PROGRAMS = {"kernels_test.c": ("step.c", "search.c", "threads.c"), "lm_test.c": ("lm.c", "threads.c")}


@pytest.mark.usefixtures("sanitizers")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_native_code_reads_and_writes_only_its_memory(tmp_path: Path, program: str, variant: str) -> None:
    sources = (Path(__file__).with_name(program), *(FOLDER / name for name in PROGRAMS[program]))
    flags = ("-std=gnu11", "-g", f"-DVARIANT={variant}", f"-I{FOLDER}", *FLAGS.get(variant, []))
    done = compile_and_run(tmp_path, *flags, *map(str, sources))
    assert done.returncode == 0, done.stderr
