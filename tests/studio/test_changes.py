"""What a person changes on the page: the X-ray, the steps and the answer follow, beside the original."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.serve.setting import png

import clearhead
from clearhead import Predictor
from clearhead.look.changes import weight_set
from clearhead.studio.changes import with_token

from .conftest import Ask

Find = Callable[[str], Predictor]
TEXT = "the old house with water"
WEIGHT = {"kind": "weight", "layer": "decoder.1.cross", "head": 0, "query": 1, "key": 2, "weight": 0.75}


def values(found: dict[str, Any], part: str, shape: list[int]) -> torch.Tensor:
    raw = np.frombuffer(base64.b64decode(found[part]["value"]), dtype="<f4").copy()
    return torch.from_numpy(raw).view(shape)


def test_a_dragged_weight_changes_what_comes_after_it_and_the_original_stays(ask: Ask, model: Find) -> None:
    before = ask("xray", model="translator", text=TEXT, items=["decoder.1", "probabilities"])
    after = ask("xray", model="translator", text=TEXT, items=["decoder.1", "probabilities"], changes=[WEIGHT])
    shape = before["parts"]["decoder.1.cross.weights"]["shape"]
    assert after["axes"] == before["axes"]  # the decoder reads the words of the original
    weights = values(after["values"], "decoder.1.cross.weights", shape)
    assert float(weights[0, 1, 2]) == pytest.approx(0.75, rel=1e-5)
    assert torch.allclose(weights.sum(-1), torch.ones(shape[:2]))
    translator: Any = model("translator")
    look = translator.look(TEXT)
    with weight_set(translator.network, "decoder.1.cross", 0, 1, 2, 0.75), torch.no_grad():
        logits = translator.network(*look.inputs)[0]
    expected = logits.softmax(-1).topk(10)
    shown = values(after["values"], "probabilities", list(expected.values.shape))
    assert torch.allclose(shown, expected.values, rtol=1e-4, atol=1e-6)
    assert ask("xray", model="translator", text=TEXT, items=["decoder.1", "probabilities"]) == before


CHANGES: list[dict[str, Any]] = [
    {"kind": "head", "layer": "encoder.0.self", "head": 1, "factor": 0},
    {"kind": "block", "block": "encoder.1"},
    {"kind": "seen", "layer": "decoder.0.self", "query": 2, "key": 0, "seen": False},
    {"kind": "mask"},
    {"kind": "positions"},
    {"kind": "place", "stack": "encoder", "token": 1, "place": 0},
    {"kind": "token", "stack": "encoder", "token": 1, "word": "small"},
    {"kind": "token", "stack": "decoder", "token": 1, "word": "small"},
    {"kind": "temperature", "value": 2.0},
    {"kind": "patch", "state": "encoder.0.hidden", "token": 1, "donor": "we are eating", "taken": 2},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change["kind"])
def test_each_change_changes_the_probabilities_and_is_gone_afterwards(ask: Ask, change: dict[str, Any]) -> None:
    asked = {"model": "translator", "text": TEXT, "item": "probabilities"}
    before = ask("xray/values", **asked)
    assert ask("xray/values", **asked, changes=[change]) != before
    assert ask("xray/values", **asked) == before
    answers = ask("xray/answer", model="translator", text=TEXT, changes=[change])
    assert set(answers) == {"original", "changed", "text"}
    assert answers["original"] == ask("xray", model="translator", text=TEXT)["output"]


def test_an_edited_token_is_read_and_the_answer_can_be_followed(ask: Ask, model: Find) -> None:
    edit = {"kind": "token", "stack": "encoder", "token": 1, "word": "small"}
    answers = ask("xray/answer", model="translator", text=TEXT, changes=[edit])
    assert answers["text"] == "the small house with water"
    assert answers["changed"] == model("translator").look("the small house with water").output
    kept = ask("xray", model="translator", text=TEXT, changes=[edit])
    followed = ask("xray", model="translator", text=TEXT, changes=[edit], follow=True)
    assert kept["output"] == answers["original"]
    assert followed["output"] == answers["changed"]


def test_a_word_is_put_where_the_token_stood(model: Find) -> None:
    tokenizer = model("translator").tokenizer
    assert with_token(tokenizer, TEXT, 1, "red") == "the red house with water"
    assert with_token(tokenizer, TEXT, 0, "a") == "a old house with water"
    pieces = clearhead.load("en-es").tokenizer  # a blank belongs to the token after it
    at = pieces.tokens("She has a red car.").index("▁red")
    assert with_token(pieces, "She has a red car.", at, "blue") == "She has a blue car."
    letters = model("writer").tokenizer
    assert with_token(letters, "abcde", 2, "x") == "abxde"
    assert with_token(letters, "abcde", 2, "") == "abde"


def test_a_language_model_is_changed_and_drawn_by_its_temperature(ask: Ask) -> None:
    head = {"kind": "head", "layer": "decoder.0.self", "head": 0, "factor": 0.0}
    for generate in (False, True):
        asked = {"model": "writer", "text": "abcde", "generate": generate, "item": "probabilities"}
        assert ask("xray/values", **asked, changes=[head]) != ask("xray/values", **asked)
    hot = [{"kind": "temperature", "value": 5.0, "seed": seed} for seed in range(4)]
    drawn = [ask("xray/answer", model="writer", text="abcde", changes=[each])["changed"] for each in hot]
    assert len(set(drawn)) > 1
    assert ask("xray/answer", model="writer", text="abcde", changes=[hot[1]])["changed"] == drawn[1]
    edit = {"kind": "token", "stack": "decoder", "token": 2, "word": "x"}
    assert ask("xray", model="writer", text="abcde", changes=[edit])["axes"]["decoder"] == list("abxde")


@pytest.mark.parametrize("name", ["critic", "eyes"])
def test_a_model_that_answers_with_a_label_is_changed(ask: Ask, name: str) -> None:
    image = base64.b64encode(png()).decode()
    asked = {"model": name, "text": "we are", "image": image}
    off = {"kind": "head", "layer": "encoder.0.self", "head": 0, "factor": 3.0}
    changed = ask("xray/values", **asked, item="probabilities", changes=[off])
    assert changed != ask("xray/values", **asked, item="probabilities")
    assert set(ask("xray/answer", **asked, changes=[off])) == {"original", "changed", "text"}


def test_the_steps_show_the_change_and_the_original(ask: Ask) -> None:
    asked = {"model": "translator", "text": TEXT, "kind": "decoder.cross", "layer": 1, "head": 0, "query": 1}
    plain = ask("steps", **asked)
    found = ask("steps", **asked, changes=[WEIGHT])
    assert found["original"] == plain
    names = [step["name"] for step in found["steps"]]
    assert names.index("your change") == names.index("scale") + 1
    softmax = next(step["value"] for step in found["steps"] if step["name"] == "softmax")
    assert softmax[2] == pytest.approx(0.75, rel=1e-4)


def test_the_beams_of_a_search_come_with_the_graph(ask: Ask, model: Find) -> None:
    found = ask("xray", model="translator", text=TEXT, beams=3)
    tree: Any = model("translator").beam_tree(TEXT, 3)
    assert found["beam"]["nodes"] == tree.to_json()["nodes"]
    assert found["output"] == found["beam"]["texts"][found["beam"]["best"]]
    assert "beam" not in ask("xray", model="translator", text=TEXT)


def test_what_cannot_be_changed_is_one_sentence(ask: Ask) -> None:
    def refused(**change: Any) -> str:
        status, sentence = ask("xray", model="translator", text=TEXT, changes=[change])
        assert status == 400
        return str(sentence)

    assert refused(**{**WEIGHT, "layer": "encoder.7.self"}).startswith("'encoder.7.self' is not an attention layer")
    assert refused(**{**WEIGHT, "key": 99}).startswith("decoder.1.cross has no key 99")
    assert "cannot be written anew" in refused(kind="token", stack="encoder", token=90, word="x")
    assert refused(kind="block", block="encoder") == "encoder is not a block of this model"
    assert refused(kind="patch", state="encoder.0.hidden", token=0, donor="we", taken=50).startswith(
        "'we' has no token 50"
    )
