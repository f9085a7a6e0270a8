"""The grammars write exactly the data that the package ships."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

import make_builtin_data


def shipped(name: str) -> bytes:
    return gzip.decompress((make_builtin_data.PACKAGE / name).read_bytes())


@pytest.mark.parametrize("name", ["prose.txt.gz", "reviews.tsv.gz", "tags.conll.gz"])
def test_a_file_written_again_holds_the_same_text(name: str) -> None:
    assert make_builtin_data.content(name) == shipped(name)


def test_compressed_files_depend_on_no_clock() -> None:
    for name in make_builtin_data.FILES:
        assert (make_builtin_data.PACKAGE / name).read_bytes()[4:8] == b"\0\0\0\0", name


@pytest.mark.slow
def test_the_tool_writes_all_files_and_compares_them(tmp_path: Path) -> None:
    tool = [sys.executable, make_builtin_data.__file__, str(tmp_path)]
    subprocess.run(tool, check=True)
    assert {file.name for file in tmp_path.iterdir()} == set(make_builtin_data.FILES)
    for name in make_builtin_data.FILES:
        assert gzip.decompress((tmp_path / name).read_bytes()) == shipped(name)
    subprocess.run([*tool, "--check"], check=True)
    (tmp_path / "prose.txt.gz").write_bytes(gzip.compress(b"another text"))
    done = subprocess.run([*tool, "--check"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "these files hold something else: prose.txt.gz\n")
