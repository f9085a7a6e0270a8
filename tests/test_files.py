from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clearhead import files
from clearhead.errors import InUseError, RunError


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/clearhead/data"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/clearhead/data"),
        ("darwin", {}, "home/Library/Caches/clearhead/data"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/clearhead/data"),
        ("linux", {"CLEARHEAD_CACHE": "chosen", "XDG_CACHE_HOME": "xdg"}, "chosen/data"),
    ],
)
def test_cache_is_in_the_system_cache_folder(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("CLEARHEAD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(files.sys, "platform", platform)
    assert files.cache_folder("data") == Path(expected)


def test_equal_tensors_are_equal_files(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(7.0), "a": torch.arange(6).view(2, 3), "c": torch.ones(3, dtype=torch.float16)}
    metadata = {"format": "clearhead 1", "facts": "{}", "another": "ü"}
    for number in range(9):  # safetensors orders the metadata anew each time
        order = list(tensors)[number % 3 :] + list(tensors)[: number % 3]
        files.write_tensors(tmp_path / f"{number}", {name: tensors[name] for name in order}, metadata)
    assert len({(tmp_path / f"{number}").read_bytes() for number in range(9)}) == 1
    read, header = files.read_tensors(tmp_path / "0")
    assert header == metadata
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_lines_are_kept_up_to_a_size_and_only_whole_ones(tmp_path: Path) -> None:
    path, whole = tmp_path / "lines.jsonl", b'{"a": 1}\n{"b": "\xc3\xbc"}\n'
    for after in (b"", b'{"c": 3}\n', b'{"c"', bytes(9), b"[1]\n", b"\xff\n"):
        path.write_bytes(whole + after)
        assert files.keep_lines(path, len(whole)) == 0
        assert path.read_bytes() == whole
    path.write_bytes(whole[:9] + bytes(4) + b"\n" + whole[9:])
    assert files.keep_lines(path, len(whole) + 5) == 5
    assert path.read_bytes() == whole
    assert files.keep_lines(tmp_path / "none.jsonl", 3) == 3
    assert not (tmp_path / "none.jsonl").exists()


def test_a_lock_is_held_once_and_freed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        files.locked(path, "it is in use"),
        pytest.raises(InUseError, match=r"^it is in use \(process \d+ on .*\)$"),
        files.locked(path, "it is in use"),
    ):
        pass
    assert not path.exists()
    with files.locked(path, "it is in use"):
        pass
    with (
        pytest.raises(RunError, match=r"cannot write .*none/lock: No such file"),
        files.locked(tmp_path / "none/lock", ""),
    ):
        pass


def test_only_temporary_names_are_leftovers(tmp_path: Path) -> None:
    for name in (".model.safetensors.12", ".lock", ".gitignore", "notes.7", ".a.b"):
        (tmp_path / name).touch()
    (tmp_path / ".step-1.part").mkdir()
    files.remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.b", ".gitignore", ".lock", "notes.7"]
