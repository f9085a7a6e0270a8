from __future__ import annotations

from pathlib import Path

import pytest

from clearhead import files


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
