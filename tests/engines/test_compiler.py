from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.engines import compiler


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler.native.cache_clear()
    compiler._path.cache_clear()
    yield tmp_path  # type: ignore[misc]
    compiler.native.cache_clear()
    compiler._path.cache_clear()


def without_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder / "empty"))
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.skipif(compiler._compiler() is None, reason="no C compiler on this machine")
def test_it_is_compiled_once_and_then_only_opened(own_cache: Path) -> None:
    assert compiler.kept() is None
    first = compiler.native()
    assert first is not None
    assert first.clearhead_width() in (4, 8, 16)
    [made] = (own_cache / "clearhead" / "engines").iterdir()
    date = made.stat().st_mtime_ns
    compiler.native.cache_clear()
    assert compiler.kept() is not None
    assert compiler.native() is not None
    assert made.stat().st_mtime_ns == date


def test_without_a_compiler_there_is_nothing(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch, own_cache)
    assert compiler.native() is None
    assert compiler.kept() is None


def test_a_compiler_that_fails_is_none(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = own_cache / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert compiler.native() is None
    assert not list((own_cache / "clearhead" / "engines").iterdir())


def test_a_folder_that_cannot_be_written_is_no_failure(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_cache / "clearhead").write_text("a file where the folder should be", encoding="utf-8")
    assert compiler.native() is None


@pytest.mark.skipif(compiler._compiler() is None, reason="no C compiler on this machine")
def test_what_another_machine_left_is_not_used(own_cache: Path) -> None:
    path = compiler._path()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a library")
    assert compiler.kept() is None
