from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from clearhead.engines.native import compiler


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler.load_library.cache_clear()
    compiler._library_path.cache_clear()
    yield tmp_path  # type: ignore[misc]
    compiler.load_library.cache_clear()
    compiler._library_path.cache_clear()


def without_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder / "empty"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiler, "find_spec", lambda _name: None)


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(compiler._compiler() is None, reason="no C compiler on this machine")
def test_it_is_compiled_once_and_then_loaded(own_cache: Path) -> None:
    assert compiler.load_cached() is None
    first = compiler.load_library()
    assert first is not None
    assert first.clearhead_width() in (4, 8, 16)
    [made] = (own_cache / "clearhead" / "engines").iterdir()
    date = made.stat().st_mtime_ns
    compiler.load_library.cache_clear()
    assert compiler.load_cached() is not None
    assert compiler.load_library() is not None
    assert made.stat().st_mtime_ns == date


def test_without_a_compiler_there_is_no_library(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch, own_cache)
    assert compiler.load_library() is None
    assert compiler.load_cached() is None


def test_a_failing_compiler_gives_no_library(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(script(own_cache / "cc", "exit 1")))
    assert compiler.load_library() is None
    assert not list((own_cache / "clearhead" / "engines").iterdir())


def test_an_unwritable_cache_is_no_error(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_cache / "clearhead").write_text("a file where the folder should be", encoding="utf-8")
    assert compiler.load_library() is None


@pytest.mark.skipif(compiler._compiler() is None, reason="no C compiler on this machine")
def test_a_library_that_cannot_be_loaded_is_compiled_again(own_cache: Path) -> None:
    path = compiler._library_path()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a library")
    assert compiler.load_cached() is None
    assert compiler.load_library() is not None


@pytest.mark.skipif(compiler._compiler() is None, reason="no C compiler on this machine")
def test_without_openmp_it_compiles_without_threads(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = compiler._compiler()
    assert real is not None
    other = script(
        own_cache / "cc",
        'case "$*" in *-fopenmp*) for each in "$@"; do last=$made; made=$each; '
        'if [ "$last" = -o ]; then echo nothing > "$made"; fi; done; exit 0;; esac',
        f'exec {" ".join(real)} "$@"',
    )
    monkeypatch.setenv("CC", str(other))
    assert compiler.load_library() is not None


def test_ziglang_is_the_last_choice(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch, own_cache)
    package = ModuleSpec("ziglang", None, origin=str(own_cache / "__init__.py"))
    monkeypatch.setattr(compiler, "find_spec", lambda _name: package)
    assert compiler._compiler() is None
    brought = script(own_cache / "zig")
    assert compiler._compiler() == [str(brought), "cc"]
    monkeypatch.setenv("CC", str(script(own_cache / "own")))
    assert compiler._compiler() == [str(own_cache / "own")]
