"""The models that come with the package do what their cards say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import clearhead
from clearhead.data import read
from clearhead.look.units import rank_units, windows
from clearhead.look.views.induction import induction
from clearhead.run import BUNDLED, bundled_names, describe

REAL = Path(os.environ.get("CLEARHEAD_DATA", "no such folder"))


@pytest.mark.parametrize(
    ("model", "english", "translation"),
    [
        ("en-es", "I'm not hungry yet.", "Todavía no tengo hambre."),
        ("en-es", "We are eating bread.", "Estamos comiendo pan."),
        (
            "en-es",
            "The agreement on the European Economic Area was signed in August 1992.",
            "El acuerdo sobre el Espacio Económico Europeo fue firmado en agosto de 1992.",
        ),
        ("en-de", "Where is the train station?", "Wo ist der Bahnhof?"),
        ("en-de", "Two children are playing in the snow.", "Zwei Kinder spielen im Schnee."),
    ],
)
def test_a_translation(model: str, english: str, translation: str) -> None:
    assert clearhead.load(model).translate(english) == translation


def test_they_are_small() -> None:
    sizes = {model.name: model.size for model in map(describe, (BUNDLED / name for name in bundled_names()))}
    assert max(sizes.values()) <= 8e6
    assert sum(sizes.values()) <= 30e6


def test_word_vectors_know_what_goes_together() -> None:
    words = clearhead.load("words")
    assert "sperm" in [word for word, _ in words.neighbours("whale", 3)]
    assert "her" in [word for word, _ in words.analogy("she", "he", "him", 3)]


def test_made_up_words_are_learned_from_the_line_by_an_induction_head() -> None:
    model = clearhead.load("invented")
    for line, word in {"zog plim zog quav plim qu": "av", "tim forn badu forn tim ba": "du"}.items():
        assert model.generate(line, temperature=0, max_tokens=2) == line + word
    scores = induction(model.network, model.tokenizer.word_ids())
    layer, _, best = scores.best()
    assert layer == 1
    assert best > 0.7


@pytest.mark.skipif(not (REAL / "tinyshakespeare").is_dir(), reason="needs the real corpora: set CLEARHEAD_DATA")
def test_a_unit_of_the_lstm_follows_the_place_in_the_line() -> None:
    """On text that it has not learned from."""
    text = "".join(read("tinyshakespeare", validation=0.1).validation)[:20_000]
    model = clearhead.load("shakespeare-lstm")
    ids = model.tokenizer.encode(text)
    best = rank_units(model.network, windows(ids, model.tokenizer.pieces(ids)), count=1)[0]
    assert best.feature == "line position"
    assert best.correlation > 0.7
