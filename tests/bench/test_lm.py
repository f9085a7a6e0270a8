from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.bench import lm
from clearhead.errors import DataError


def test_a_prompt_has_exactly_so_many_tokens() -> None:
    assert lm.prompt_of([5, 7, 9], 8) == [5, 7, 9, 5, 7, 9, 5, 7]
    assert lm.prompt_of([5, 7, 9], 2) == [5, 7]


def test_without_a_file_it_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARHEAD_GGUF", raising=False)
    monkeypatch.setattr(lm, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match="bench lm needs a GGUF file in Q4_1; set CLEARHEAD_GGUF, or pip install"):
        lm.model_file()
    monkeypatch.setenv("CLEARHEAD_GGUF", "mine.gguf")
    assert lm.model_file() == Path("mine.gguf")


def test_the_goals_cover_every_work() -> None:
    assert all(goals.keys() == {work.name for work in lm.WORKS} for goals in lm.GOALS.values())
