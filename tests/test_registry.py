"""Names from this package, from installed packages, and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.errors import ConfigError
from clearhead.nn.positions import POSITIONS
from clearhead.registry import Registry


def test_a_registered_thing_is_found_by_its_name() -> None:
    colours: Registry[str] = Registry("colour")
    assert colours.register("red")("#f00") == "#f00"
    assert colours["red"] == "#f00"
    assert "red" in colours
    assert list(colours) == colours.names() == ["red"]
    assert colours.builtin() == []  # this file is not in the package


def test_an_unknown_name_is_an_error_that_suggests_the_nearest() -> None:
    colours: Registry[str] = Registry("colour")
    colours.register("orange")("#fa0")
    with pytest.raises(ConfigError, match=r"unknown colour oragne; did you mean orange\?"):
        colours["oragne"]


def test_a_registry_with_a_package_has_a_name_for_each_module() -> None:
    found: Registry[object] = Registry("module", "clearhead.text")
    assert "tokenizer" in found.builtin()


def test_an_entry_point_of_an_installed_package_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paint.py").write_text("BLUE = '#00f'\n", encoding="utf-8")
    metadata = tmp_path / "paint-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: paint\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[clearhead.colours]\nblue = paint:BLUE\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    colours: Registry[str] = Registry("colour")
    assert colours["blue"] == "#00f"
    assert colours.names() == ["blue"]
    assert colours.builtin() == []


def test_a_name_from_outside_is_not_among_those_of_the_package() -> None:
    before = POSITIONS.builtin()
    POSITIONS.register("outside")(POSITIONS["none"])
    try:
        assert POSITIONS.builtin() == before
        assert "outside" in POSITIONS.names()
    finally:
        del POSITIONS._things["outside"]


def test_a_missing_plugin_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_PLUGINS", "nowhere/green.py")
    colours: Registry[str] = Registry("colour")
    with pytest.raises(ConfigError, match=r"CLEARHEAD_PLUGINS: there is no file nowhere/green\.py"):
        colours["green"]


def test_a_plugin_file_registers_what_it_defines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sepia_scheme.py"
    file.write_text("from clearhead.registry import Registry\nLOADED = []\nLOADED.append(1)\n", encoding="utf-8")
    monkeypatch.setenv("CLEARHEAD_PLUGINS", str(file))
    colours: Registry[str] = Registry("colour")
    with pytest.raises(ConfigError, match="unknown colour"):
        colours["sepia"]
    import sys

    assert sys.modules["clearhead_plugin_sepia_scheme"].LOADED == [1]
    with pytest.raises(ConfigError, match="unknown colour"):
        colours["sepia"]
    assert sys.modules["clearhead_plugin_sepia_scheme"].LOADED == [1]


def test_a_plugin_that_is_no_python_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("blue", encoding="utf-8")
    monkeypatch.setenv("CLEARHEAD_PLUGINS", str(tmp_path / "notes.txt"))
    colours: Registry[str] = Registry("colour")
    with pytest.raises(ConfigError, match=r"CLEARHEAD_PLUGINS: .*notes\.txt is not a Python file"):
        colours["blue"]


def test_a_plugin_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "failing_scheme.py"
    file.write_text("raise ZeroDivisionError('by 0')\n", encoding="utf-8")
    monkeypatch.setenv("CLEARHEAD_PLUGINS", str(file))
    colours: Registry[str] = Registry("colour")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="by 0"):
            colours["blue"]
