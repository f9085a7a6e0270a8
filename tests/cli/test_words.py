"""`clearhead words`: what it prints, and one sentence for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from clearhead.cli.main import _run
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.text import Tokenizer

# king - man + woman = queen, exactly; ship points elsewhere, the mark is no word.
VECTORS = {
    "king": [3, 1, 0],
    "man": [1, 1, 0],
    "woman": [1, -1, 0],
    "queen": [3, -1, 0],
    "ship": [0, 0, 1],
    ",": [3, -1, 0],
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    run = Run.create(tmp_path / "run", override_config(default_config("words"), ["model.dim=3"]))
    vocabulary = Tokenizer.train("word", [" ".join(VECTORS)], lowercase=True)
    vocabulary.save(run.path / "tokenizer.json")
    sizes = Sizes(vocabulary=len(vocabulary))
    tensors = build_network(run_config(run), sizes).state_dict()
    for word, vector in VECTORS.items():
        tensors["center.weight"][vocabulary.id(word)] = torch.tensor(vector, dtype=torch.float32)
    save_weights(run, run_config(run), tensors, ModelMeta(sizes))
    return str(run.path)


def test_neighbours_are_listed_from_near_to_far(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["words", model, "neighbours", "King", "--count", "3"], debug=False) == 0
    assert capsys.readouterr().out == "  0.894  man\n  0.800  queen\n  0.447  woman\n"


def test_long_vectors_count_more_by_the_dot_product(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["words", model, "neighbours", "king", "--measure", "dot", "--count", "2"], debug=False) == 0
    assert capsys.readouterr().out == "  8.000  queen\n  4.000  man\n"


def test_an_analogy_is_solved(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["words", model, "analogy", "king", "man", "woman"], debug=False) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("  queen")


def test_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["words", model, "neighbours", "king", "--count", "1", "--json"], debug=False) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["question"] == "neighbours"
    assert found["words"] == ["king"]
    assert found["found"] == [{"word": "man", "cosine": pytest.approx(0.8944, abs=1e-4)}]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["neighbours", "quen"], "'quen' is not among the 5 words of this model; did you mean queen?"),
        (["analogy", "king", "man", ","], "',' is not among the 5 words of this model"),
        (["neighbours"], "neighbours takes 1 and not 0 words: clearhead words MODEL neighbours WORD"),
        (["neighbours", "a", "b"], "neighbours takes 1 and not 2 words: clearhead words MODEL neighbours WORD"),
        (["analogy", "king", "man"], "analogy takes 3 and not 2 words: clearhead words MODEL analogy A B C"),
        (["neighbors", "king"], "unknown question neighbors; did you mean neighbours?"),
        (["neighbours", "king", "--measure", "cosin"], "unknown measure cosin; did you mean cosine?"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], sentence: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["words", model, *words], debug=False) == 2
    assert capsys.readouterr().err == f"clearhead: {sentence}\n"


def test_a_model_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["words", "no/such", "neighbours", "king"], debug=False) == 2
    assert capsys.readouterr().err.startswith("clearhead: no such run directory or model: no/such; `clearhead models`")
