"""What `--json` prints, errors that name options, and progress."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from clearhead.cli import common
from clearhead.cli.common import format_json, notes, progress_bar, progress_counter
from clearhead.cli.main import _run

plain = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text()
documents = some.recursive(plain, lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner))


@given(documents)
def test_it_parses_to_the_same_document(document: Any) -> None:
    assert json.loads(format_json(document)) == document


def test_a_list_of_numbers_stays_on_one_line() -> None:
    document = {"word": "señor", "weights": [[0.5, 0.25], [1, 0]], "shape": (2, 3), "labels": [], "more": {}}
    assert format_json([document, {"n": None}]).split("\n") == [
        "[",
        "  {",
        '    "word": "señor",',
        '    "weights": [',
        "      [0.5, 0.25],",
        "      [1, 0]",
        "    ],",
        '    "shape": [2, 3],',
        '    "labels": [],',
        '    "more": {}',
        "  },",
        "  {",
        '    "n": null',
        "  }",
        "]",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--beams", "0"), "--beams=0 must be 1 or more"),
        (("--cache", "0"), "--cache=0 must be 1 or more"),
        (
            ("--beams", "4", "--top-k", "3"),
            "--top-k=3 is for sampling and --beams=4 for beam search; choose one of them",
        ),
        (("--groups", "2"), "--beams=1 is not divisible by --groups=2"),
        (("--banned-tokens", "-7"), "--banned-tokens: token -7 is negative; tokens count from 0"),
    ],
)
def test_an_error_names_the_option(words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["generate", "shakespeare", "ROMEO:", *words], debug=False) == 2
    assert capsys.readouterr().err == f"clearhead: {sentence}\n"


# --- progress ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(patch: pytest.MonkeyPatch) -> Terminal:
    """Standard error becomes a terminal; standard output is none."""
    shown = Terminal()
    patch.setenv("TERM", "xterm")
    patch.setattr(sys, "stderr", shown)
    return shown


def test_items_are_counted_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    with progress_counter("texts", shown=True) as advance:
        for _ in range(1200):
            advance()
    assert "1,200 texts, " in shown.getvalue()


def test_a_bar_on_a_terminal_knows_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    with progress_bar("layers", shown=True) as report:
        report(3, 7)
    assert " 43%" in shown.getvalue()


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    with progress_bar("layers", shown=True) as report, progress_counter("texts", shown=True) as advance:
        for done in range(1, 4):
            now[0] += 0.7 * common.LINE_EVERY
            report(1000 * done, 7000)
            advance()
    assert capsys.readouterr().err == "clearhead: 2,000 of 7,000 layers\n"


def test_progress_that_is_not_shown_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("layers", shown=False) as report, progress_counter("texts", shown=False) as advance:
        report(1, 2)
        advance()
    assert capsys.readouterr().err == ""


def test_few_notes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    note = notes(limit=2)
    for number in range(5):
        note(f"text {number} is cut")
    assert capsys.readouterr().err.splitlines() == [
        "clearhead: text 0 is cut",
        "clearhead: text 1 is cut",
        "clearhead: further notes are not shown",
    ]
