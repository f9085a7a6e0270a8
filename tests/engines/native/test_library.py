from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from clearhead.engines.native import library


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.load_library.cache_clear()
    library._library_path.cache_clear()
    yield tmp_path  # type: ignore[misc]
    library.load_library.cache_clear()
    library._library_path.cache_clear()


def without_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder / "empty"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(library, "find_spec", lambda _name: None)


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(library._compiler() is None, reason="no C compiler on this machine")
def test_it_is_compiled_once_and_then_loaded(own_cache: Path) -> None:
    assert library.load_cached() is None
    first = library.load_library()
    assert first is not None
    assert first.clearhead_width() in (4, 8, 16)
    [made] = (own_cache / "clearhead" / "engines").iterdir()
    date = made.stat().st_mtime_ns
    library.load_library.cache_clear()
    assert library.load_cached() is not None
    assert library.load_library() is not None
    assert made.stat().st_mtime_ns == date


def test_without_a_compiler_there_is_no_library(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch, own_cache)
    assert library.load_library() is None
    assert library.load_cached() is None


def test_a_failing_compiler_gives_no_library(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(script(own_cache / "cc", "exit 1")))
    assert library.load_library() is None
    assert not list((own_cache / "clearhead" / "engines").iterdir())


def test_an_unwritable_cache_is_no_error(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_cache / "clearhead").write_text("a file where the folder should be", encoding="utf-8")
    assert library.load_library() is None


@pytest.mark.skipif(library._compiler() is None, reason="no C compiler on this machine")
def test_a_library_that_cannot_be_loaded_is_compiled_again(own_cache: Path) -> None:
    path = library._library_path()
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a library")
    write_library(path.parent)
    assert library.load_cached() is None
    assert library.load_library() is not None


@pytest.mark.skipif(library._compiler() is None, reason="no C compiler on this machine")
def test_a_truncated_library_is_compiled_again(own_cache: Path) -> None:
    assert library.load_library() is not None
    [made] = (own_cache / "clearhead" / "engines").iterdir()
    whole = made.read_bytes()
    copy = made.with_suffix(".copy")  # the file itself is mapped into this process
    copy.write_bytes(whole[: len(whole) // 2])
    copy.chmod(0o700)
    copy.replace(made)
    library.load_library.cache_clear()
    assert library.load_cached() is None
    assert not made.exists()
    assert library.load_library() is not None
    assert made.read_bytes() == whole


def write_library(folder: Path, mode: int = 0o700) -> Path:
    """A file with the right name that no compiler of ours wrote."""
    path = library._library_path()
    assert path is not None
    assert path.parent == folder
    content = b"code of somebody else"
    file = path.with_stem(f"{path.stem}-{library._hash(content)}")
    file.write_bytes(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_library_that_others_can_write_is_not_opened(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(library.ctypes, "CDLL", lambda path: opened.append(path) or path)  # type: ignore[func-returns-value]
    file = write_library(own_cache / "clearhead" / "engines", mode)
    assert library.load_cached() is None
    file.chmod(0o700)
    assert library.load_cached() == str(file)
    assert opened == [str(file)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_library_or_a_folder_of_another_user_is_not_opened(own_cache: Path) -> None:
    folder = own_cache / "clearhead" / "engines"
    file = write_library(folder)
    os.chown(file, 12345, -1)
    assert library._open(file) is None
    os.chown(folder, 12345, -1)
    assert not library.is_private(folder)
    library._library_path.cache_clear()
    path = library._library_path()
    assert path is not None
    assert path.parent != folder


def test_a_folder_below_one_that_others_can_write_is_not_used(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.tempfile, "gettempdir", lambda: str(own_cache))
    (own_cache / "clearhead").mkdir()
    (own_cache / "clearhead").chmod(0o777)
    path = library._library_path()
    assert path is not None
    assert path.parent == own_cache / f"clearhead-{os.getuid()}"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    (own_cache / "clearhead").chmod(0o1777)  # sticky, as /tmp is
    library._library_path.cache_clear()
    path = library._library_path()
    assert path is not None
    assert path.parent == own_cache / "clearhead" / "engines"


def test_a_link_to_a_library_is_not_opened(own_cache: Path) -> None:
    file = write_library(own_cache / "clearhead" / "engines")
    real = file.replace(own_cache / "elsewhere.so")
    file.symlink_to(real)
    assert library._open(file) is None


@pytest.mark.skipif(library._compiler() is None, reason="no C compiler on this machine")
def test_without_openmp_it_compiles_without_threads(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = library._compiler()
    assert real is not None
    other = script(
        own_cache / "cc",
        'case "$*" in *-fopenmp*) for each in "$@"; do last=$made; made=$each; '
        'if [ "$last" = -o ]; then echo nothing > "$made"; fi; done; exit 0;; esac',
        f'exec {" ".join(real)} "$@"',
    )
    monkeypatch.setenv("CC", str(other))
    assert library.load_library() is not None


def test_ziglang_is_the_last_choice(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch, own_cache)
    package = ModuleSpec("ziglang", None, origin=str(own_cache / "__init__.py"))
    monkeypatch.setattr(library, "find_spec", lambda _name: package)
    assert library._compiler() is None
    brought = script(own_cache / "zig")
    assert library._compiler() == [str(brought), "cc"]
    monkeypatch.setenv("CC", str(script(own_cache / "own")))
    assert library._compiler() == [str(own_cache / "own")]


# --- threads ---


def test_the_faster_number_of_threads_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {1: 5, 4: 1}  # with four threads a step takes less
    now = [0.0]
    monkeypatch.setattr(library.time, "perf_counter", lambda: now[0])
    found = library.ThreadChooser(most=4)
    for _ in range(2 * library.TRIALS):
        with found.choose(rows=9) as trial:
            now[0] += slow[trial.threads]
    with found.choose(rows=9) as trial:
        assert trial.threads == 4
    with found.choose(rows=100) as trial:  # another size is tried anew
        assert trial.threads == 1


def test_the_choice_recovers_from_a_slow_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slow = [0.0], {1: 5.0, 4: 1.0}
    monkeypatch.setattr(library.time, "perf_counter", lambda: now[0])
    found, chosen = library.ThreadChooser(most=4), []
    for step in range(200):
        with found.choose(rows=9) as trial:
            now[0] += slow[trial.threads] + (20 if trial.threads == 4 and step < 9 else 0)
        chosen.append(trial.threads)
    assert chosen[10] == 1  # when it was measured, four threads seemed slower
    assert set(chosen[-20:]) == {4}


def test_a_search_is_measured_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(library.time, "perf_counter", lambda: now[0])
    found = library.ThreadChooser(most=4)
    for _ in range(library.TRIALS):  # a search counts as two
        with found.choose(rows=9) as trial:
            trial.steps = 30 if trial.threads == 4 else 10
            now[0] += 3.0 if trial.threads == 4 else 2.0
    with found.choose(rows=9) as trial:
        assert trial.threads == 4
