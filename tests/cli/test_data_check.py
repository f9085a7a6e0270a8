"""`clearhead data check` as a user meets it: what it prints, and one sentence for every kind of bad file."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.cli import main

PAIRS = "".join(f"sentence number {number}\tfrase número {number}\n" for number in range(50))


def run(*words: object) -> int:
    return main._run(["data", "check", *map(str, words)], debug=False)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "en-es.tsv"
    path.write_text(PAIRS + "the same\tthe same\n", encoding="utf-8")
    return path


def test_a_report_fits_the_terminal(
    pairs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(pairs) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for words in (
        "translation pairs (en → es): a file named after en, es",
        "validation  ",
        "duplicates  0 repeated pairs",
        "source words",
        "both sides the same   line 51",
        f"clearhead train translate --data {pairs}",
    ):
        assert words in printed.out
    assert all(len(line) <= 80 for line in printed.out.splitlines() if str(pairs) not in line)


def test_json(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(pairs, "--json", "--source", "es", "--target", "en") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["languages"] == ["es", "en"]
    assert report["train"] + report["validation"] == 51
    assert report["faults"] == [{"what": "both sides the same", "count": 1, "places": ["line 51"]}]


def test_many_classes_are_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("label,text\n" + "".join(f"c{n % 20},text {n}\n" for n in range(400)), encoding="utf-8")
    assert run(path) == 0
    printed = capsys.readouterr().out
    assert "8 more" in printed
    assert "labelled texts: a column named label" in printed


def test_a_file_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("label,text\n" + "\x1b[31mred,some text\nblue,other text\n" * 9, encoding="utf-8")
    assert run(path) == 0
    assert "\x1b" not in capsys.readouterr().out


def image_folder(folder: Path) -> Path:
    (folder / "cat").mkdir()
    (folder / "cat" / "fake.png").write_bytes(b"no pixels")
    return folder


def written(name: str, content: bytes):
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


BAD = {
    "an empty file": (written("a.tsv", b""), "a.tsv: is empty"),
    "an empty folder": (lambda folder: folder, ": is an empty folder"),
    "a missing file": (lambda folder: folder / "a.tsv", "a.tsv: does not exist"),
    "a header without rows": (written("a.csv", b"en,es\n"), "a.csv: holds a header and no rows"),
    "a missing column": (
        written("a.csv", b"en,es\na,b\n"),
        "a.csv: has no column fr; choose from: en, es",
        "--source=fr",
    ),
    "three tabs": (
        written("a.tsv", b"a\tb\nc\td\te\tf\n"),
        "a.tsv, line 2: has 4 columns where the rows before it have 2; each row needs the same columns",
    ),
    "a binary file": (written("a.txt", bytes(range(256))), "a.txt: is a binary file, not text (it holds a NUL byte)"),
    "invalid UTF-8": (
        written("a.tsv", "a\tb\ncafé\tc\n".encode("latin-1")),
        "a.tsv, line 2: is not utf-8 text (byte 0xE9); name its encoding, e.g. --encoding latin-1 "
        "(data.encoding=latin-1)",
    ),
    "a truncated gzip": (
        written("a.tsv.gz", gzip.compress(os.urandom(9000))[:5000]),
        "a.tsv.gz: ends in the middle (truncated download?); fetch it again",
    ),
    "an image that is not one": (image_folder, "cat/fake.png: is not an image"),
    "a 10 MB line": (
        written("a.tsv", b"a\tb\n" + b"x" * 10_000_000),
        "a.tsv, line 2: is 10.0 MB long, over the limit of 1 MB; if it is one long running text, "
        "read it with --kind text (data.kind=text)",
    ),
    "an unknown kind": (written("a.txt", b"words\n"), "unknown kind txt; did you mean text?", "--kind=txt"),
    "an unknown encoding": (written("a.txt", b"words\n"), "unknown encoding utf9; try utf-8", "--encoding=utf9"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make, sentence, *options = BAD[name]
    path = make(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert run(path, *options) == 2
    printed = capsys.readouterr()
    assert sorted(tmp_path.rglob("*")) == before
    assert printed.out == ""
    assert printed.err.startswith("clearhead: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


def test_an_error_can_be_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--json") == 2
    assert json.loads(capsys.readouterr().err)["error"] == f"{tmp_path}: is an empty folder"


@pytest.mark.parametrize(("content", "code"), [(PAIRS, 0), ("a\tb\nc\n", 2)])
def test_as_a_command(tmp_path: Path, content: str, code: int) -> None:
    (tmp_path / "a.tsv").write_text(content, encoding="utf-8")
    command = [sys.executable, "-m", "clearhead", "data", "check", "a.tsv"]
    environment = os.environ | {"PYTHONPATH": str(Path(clearhead.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert (done.stderr == "") == (code == 0)
    assert "Traceback" not in done.stderr
    assert ("clearhead train translate --data a.tsv" in done.stdout) == (code == 0)


def test_one_is_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("hello\thola\ngood morning\tbuenos días\nthank you\tgracias\nplease\tpor favor\n", encoding="utf-8")
    assert run(path) == 0
    printed = capsys.readouterr().out
    assert "validation  1 pair, held out" in printed
    assert "1 pairs" not in printed
