"""The models that come with the package do what their cards say."""

from __future__ import annotations

import pytest

import clearhead
from clearhead import bundled


@pytest.mark.parametrize(
    ("english", "spanish"),
    [("I'm not hungry yet.", "Todavía no tengo hambre."), ("We are eating bread.", "Estamos comiendo pan.")],
)
def test_a_translation(english: str, spanish: str) -> None:
    assert clearhead.load("en-es").translate(english) == spanish


def test_they_are_small() -> None:
    sizes = {model.name: model.size for model in bundled.bundled()}
    assert max(sizes.values()) <= 8e6
    assert sum(sizes.values()) <= 25e6


def test_word_vectors_know_what_goes_together() -> None:
    words = clearhead.load("words")
    assert "sperm" in [word for word, _ in words.neighbours("whale", 3)]
    assert "her" in [word for word, _ in words.analogy("she", "he", "him", 3)]
