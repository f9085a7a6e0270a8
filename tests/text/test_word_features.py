"""Hashed features of words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.text.word_features import FEATURES, shape, word_features


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Hello", "Xxx"),
        ("USA", "XX"),
        ("1992", "dd"),
        ("well-known", "xx-xx"),
        ("", ""),
        ("日本語", "xx"),
    ],
)
def test_shapes(word: str, expected: str) -> None:
    assert shape(word) == expected


@given(st.lists(st.text(max_size=7), max_size=11), st.integers(2, 101))
def test_every_word_has_all_features_inside_the_table(words: list[str], rows: int) -> None:
    found = word_features(words, rows)
    assert found.shape == (len(words), FEATURES)
    assert found.size == 0 or (found.min() >= 1 and found.max() < rows)


def test_an_unseen_word_shares_its_ending_and_its_neighbours() -> None:
    seen, unseen = (word_features(["he", word, "home"], 1 << 20) for word in ("walked", "Trekked"))
    equal = [column for column in range(FEATURES) if seen[1, column] == unseen[1, column]]
    assert equal == [4, 5, 6, 9, 10]  # -d, -ed, -ked, before: he, after: home
    assert np.array_equal(seen[0, :9], unseen[0, :9])
    assert seen[0, 10] != unseen[0, 10]
