"""A reader in one file outside the package is detected, selected by name, checked and trained on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clearhead.data import Pair, detect, read
from clearhead.data.check import check
from clearhead.data.dataset import find_reader
from clearhead.data.readers import READERS, Certainty, Detected
from clearhead.errors import ConfigError, DataError

PLUGIN = Path(__file__).parent / "reader_plugin.py"


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_PLUGINS", str(PLUGIN))


@pytest.fixture
def phrases(tmp_path: Path) -> Path:
    path = tmp_path / "phrases.ini"
    records = [f"[{number}]\nsource = number {number}\ntarget = número {number}\n" for number in range(60)]
    path.write_text("\n".join(records) + "\n[same]\nsource = no\ntarget = no\n", encoding="utf-8")
    return path


def test_it_is_detected_and_read(phrases: Path) -> None:
    found = detect(phrases)
    assert (found.kind, found.reason) == ("records", "records in an .ini file")
    dataset = read(phrases, validation=0.1)
    assert (dataset.kind, len(dataset.train) + len(dataset.validation)) == ("pairs", 61)
    assert sorted([*dataset.train, *dataset.validation], key=lambda pair: pair.line)[:2] == [
        Pair("number 0", "número 0", 2),
        Pair("number 1", "número 1", 6),
    ]


def test_the_parts_of_a_folder_are_found(phrases: Path) -> None:
    phrases.rename(phrases.with_name("train.ini"))
    phrases.with_name("valid.ini").write_text("source = yes\ntarget = sí\n", encoding="utf-8")
    assert detect(phrases.parent).reason == "train.ini has records in an .ini file"
    dataset = read(phrases.parent)
    assert (len(dataset.train), list(dataset.validation)) == (61, [Pair("yes", "sí", 1)])


def test_it_is_selected_by_name(phrases: Path) -> None:
    renamed = phrases.rename(phrases.with_suffix(".txt"))
    assert detect(renamed).kind == "text"
    assert len(read(renamed, kind="records", validation=0).train) == 61
    with pytest.raises(ConfigError, match=r"unknown kind record; did you mean records\?"):
        read(renamed, kind="record")


def test_it_is_checked(phrases: Path) -> None:
    report = check(phrases)
    assert (report.kind, report.unit, report.train + report.validation) == ("records", "pairs", 61)
    assert [(fault.what, fault.places) for fault in report.faults] == [("both sides the same", ("line 242",))]
    assert report.command == f"clearhead train translate --data {phrases}"


def test_its_errors_are_like_those_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "a.ini"
    path.write_text("source = yes\n\ntarget = sí\ntarget = claro\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.ini, line 4: has a target before its source$"):
        read(path)


def test_an_installed_package_brings_one_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "installed"

        @staticmethod
        def load() -> type:
            return type("Installed", (type(find_reader("pairs")),), {})

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry] * (group == "clearhead.readers"))
    assert isinstance(find_reader("installed"), type(find_reader("pairs")))


def test_the_surest_reader_reads(phrases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(READERS["records"], "can_read", lambda *_: Detected("a guess", Certainty.GUESS))
    assert detect(phrases).kind == "text"  # between equal guesses the package's reader is first


Run = Callable[..., str]


@pytest.fixture
def run(phrases: Path, commands_folder: Path) -> Run:
    """`clearhead` in the folder of the phrases."""

    def run(*words: str) -> str:
        command = [commands_folder / "clearhead", *words]
        return subprocess.run(command, cwd=phrases.parent, check=True, capture_output=True, text=True).stdout

    return run


def test_the_command_line_uses_it(run: Run) -> None:
    report = json.loads(run("data", "check", "phrases.ini", "--json"))
    assert (report["kind"], report["reason"]) == ("records", "records in an .ini file")
    assert "records of translation pairs: as specified" in run("data", "check", "phrases.ini", "--kind", "records")


def test_a_task_trains_on_it(phrases: Path, run: Run) -> None:
    phrases.rename(phrases.with_name("phrases.txt"))
    settings = ["data.kind=records", "train.max_steps=2", "model.dim=16", "model.layers=1", "tokenizer.size=60"]
    run("train", "translate", "--data", "phrases.txt", "--size", "tiny", "--out", "run", *settings)
    assert (phrases.parent / "run" / "model.safetensors").is_file()
