"""What `--json` prints."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from clearhead.cli.output import format_json

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
