"""`clearhead embed` and `Model.embed`: texts and images as vectors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

import clearhead
from clearhead.cli.main import _run
from clearhead.errors import RunError
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, save_weights

from .conftest import Say

DIGIT = Path(__file__).parents[2] / "docs" / "figures" / "look-digit.png"


def test_a_word_model_takes_the_mean_of_its_words() -> None:
    model = clearhead.load("words")
    ids = model.tokenizer.encode("the white whale")
    np.testing.assert_allclose(model.embed("the white whale"), model.network.vectors[ids].mean(0).detach(), rtol=1e-6)


@torch.no_grad()
def test_a_translator_takes_what_it_looks_at() -> None:
    model = clearhead.load("en-es")
    states, _ = model.network.encode(torch.tensor([model.tokenizer.encode("We are eating bread.")]))
    np.testing.assert_allclose(model.embed("We are eating bread."), states[0].mean(0), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_vision_model_takes_its_patches() -> None:
    model = clearhead.load("digits")
    expected = model.network.encoder(*model.prepare(DIGIT).inputs)[0].mean(0)
    np.testing.assert_allclose(model.embed(DIGIT), expected, rtol=1e-5, atol=1e-6)


@given(letters=some.text("abc def\n", min_size=1, max_size=300))
def test_a_long_text_is_the_mean_of_its_parts(letters: str) -> None:
    model = clearhead.load("invented")  # reads 128 letters
    parts = [letters[start : start + 128] for start in range(0, len(letters), 128)]
    expected = np.average([model.embed(part) for part in parts], axis=0, weights=[len(part) for part in parts])
    np.testing.assert_allclose(model.embed(letters), expected, rtol=1e-4, atol=1e-5)


def test_a_classifier_has_room_for_its_class_token(tmp_path: Path) -> None:
    settings = ["model.dim=12", "model.heads=3", "model.layers=1", "model.max_length=7", "data.max_length=7"]
    run = Run.create(tmp_path / "run", override_config(default_config("classify"), settings))
    vocabulary = clearhead.load("invented").tokenizer
    vocabulary.save(tmp_path / "run" / "tokenizer.json")
    sizes = Sizes(vocabulary=len(vocabulary), classes=2)
    save_weights(
        run,
        run_config(run),
        build_network(run_config(run), sizes).state_dict(),
        ModelMeta(sizes, labels=("good", "bad")),
    )
    assert clearhead.load(tmp_path / "run").embed("twenty letters or so").shape == (12,)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_what_means_alike_is_near() -> None:
    dog, cat, law = clearhead.load("words").embed(["the dog barked", "the cat ran", "a law of the state"])
    assert cosine(dog, cat) > cosine(dog, law)


@pytest.mark.parametrize("name", ["words", "en-es", "shakespeare", "shakespeare-lstm"])
def test_many_at_once_are_each_as_alone(name: str) -> None:
    model, text = clearhead.load(name), "We are eating bread and the white whale is not hungry yet."
    texts = ["", *(text[first : first + size] for first in range(0, 49, 7) for size in (2, 5, 11))] * 5
    texts += ["bread " * 2 * model.config.data.max_length]  # in parts
    alone = np.stack([model.embed(text) for text in texts])
    np.testing.assert_allclose(model.embed(texts), alone, rtol=1e-4, atol=1e-5)


def test_lists_and_nothing() -> None:
    model = clearhead.load("shakespeare-lstm")
    several = model.embed(["To be", "or not"])
    assert several.shape == (2, 128)
    np.testing.assert_array_equal(several[1], model.embed("or not"))
    assert model.embed("").shape == (128,)  # of the start token
    assert len(model.embed([])) == 0


def test_lines_of_numbers_and_json(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = clearhead.load("words").embed("white whale")
    np.testing.assert_allclose(np.fromstring(say("embed", "words", "white whale"), sep=" "), expected, rtol=1e-5)
    [answer] = say("embed", "words", "white whale", "--json")
    assert answer["item"] == "white whale"
    np.testing.assert_allclose(answer["vector"], expected, rtol=1e-6)
    stdin: Any = io.TextIOWrapper(io.BytesIO(b"white whale\n\nthe sea\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    rows = np.loadtxt(say("embed", "words").splitlines())
    assert rows.shape == (3, len(expected))
    np.testing.assert_allclose(rows[0], expected, rtol=1e-5)


def test_a_captioner_has_no_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["model.dim=12", "model.heads=3", "model.layers=1", "model.patch=2"]
    run = Run.create(tmp_path / "run", override_config(default_config("caption"), settings))
    clearhead.load("words").tokenizer.save(tmp_path / "run" / "tokenizer.json")
    sizes = Sizes(vocabulary=len(clearhead.load("words").tokenizer), channels=1, height=6, width=6)
    save_weights(run, run_config(run), build_network(run_config(run), sizes).state_dict(), ModelMeta(sizes))
    with pytest.raises(RunError, match="run is a writer of captions: it has no vectors of texts or images"):
        clearhead.load(tmp_path / "run").embed("bread")
    assert _run(["embed", str(tmp_path / "run"), "bread"], debug=False) == 2
    assert capsys.readouterr().err.count("\n") == 1
