"""Large answers: the JSON that json writes, made of small parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.serve import documents
from clearhead.serve.documents import json_bytes

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5))


@given(value=values)
def test_it_is_the_json_of_json(value: Any) -> None:
    assert json_bytes(value).decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_no_part_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a matrix are written row by row: between two of them other threads run."""
    sizes, dumps = list[int](), json.dumps
    monkeypatch.setattr(
        documents.json, "dumps", lambda *each, **how: (sizes.append(len(dumps(*each))), dumps(*each, **how))[1]
    )
    matrix = [[[number / 7 for number in range(97)] for _ in range(89)] for _ in range(3)]
    assert json.loads(json_bytes({"weights": matrix})) == {"weights": matrix}
    assert max(sizes) < 97 * 25
