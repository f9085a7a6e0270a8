"""What `--json` prints, and errors that name options."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from clearhead.cli.common import format_json
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
