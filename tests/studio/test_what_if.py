"""Switching parts off changes the answer, and they are on again afterwards."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from tests.serve.setting import png
from torch.nn import functional as F

from clearhead import Predictor, load
from clearhead.data import hub
from clearhead.errors import ProbeError
from clearhead.look.views.importance import importance_by_ablation, importance_by_gradient
from clearhead.studio.what_if import builtin_batches, missing_data, own_batches, usual_examples

from .conftest import Ask

TEXT = "the old house with water"


def test_with_nothing_switched_off_both_sides_are_equal(ask: Ask) -> None:
    found = ask("what-if", model="translator", text=TEXT)
    assert found["original"] == found["changed"]
    assert (found["divergence"], found["flipped"]) == (0, 0)


OFF = [
    {"scale": True},
    {"mask": True},
    {"positions": True},
    {"layers": ["encoder.1"]},
    {"heads": ["decoder.0.cross:2"]},
    {"scale": True, "heads": ["encoder.1.self:0", "encoder.1.self:1"]},
]


@pytest.mark.parametrize("off", OFF, ids=str)
def test_each_switch_changes_the_loss_and_nothing_stays_off(ask: Ask, off: dict[str, object]) -> None:
    before = ask("what-if", model="translator", text=TEXT)
    changed = ask("what-if", model="translator", text=TEXT, **off)
    assert changed["original"] == before["original"]
    assert changed["changed"]["loss"] != pytest.approx(before["original"]["loss"], rel=1e-6)
    assert changed["divergence"] > 0
    assert ask("what-if", model="translator", text=TEXT) == before


def test_the_loss_of_a_language_model_is_that_of_its_text(ask: Ask, model: Callable[[str], Predictor]) -> None:
    found = ask("what-if", model="writer", text="abcde")
    ids = torch.tensor([model("writer").tokenizer.encode("abcde")])
    with torch.inference_mode():
        expected = F.cross_entropy(model("writer").network(ids)[0, :-1], ids[0, 1:])
    assert found["original"]["loss"] == pytest.approx(float(expected), rel=1e-4)
    assert found["words"] == list("bcde")


@pytest.mark.parametrize("name", ["critic", "masked", "learned", "eyes", "painter"])
def test_every_model_with_attention_is_supported(ask: Ask, name: str) -> None:
    image = base64.b64encode(png()).decode()
    found = ask("what-if", model=name, text="we are", image=image, layers=["encoder.0"] * (name in ("critic", "eyes")))
    assert len(found["words"]) == len(found["original"]["probabilities"]) > 0


def test_a_model_with_learned_positions_generates_no_further_than_its_table(ask: Ask) -> None:
    assert ask("what-if", model="learned", text="we are eating")["original"]["output"].startswith("we are eating")
    assert "shorten the text" in ask("what-if", model="learned", text="bread and water " * 9)[1]


def test_an_unknown_part_is_one_sentence(ask: Ask) -> None:
    assert ask("what-if", model="translator", text=TEXT, layers=["encoder.7"])[1].startswith(
        "'encoder.7' is not a layer of this model; it has encoder.0.self"
    )
    assert ask("what-if", model="translator", text=TEXT, layers=["*"])[0] == 400
    assert ask("what-if", model="translator", text=TEXT, heads=["encoder.0.self:x"])[1] == (
        "'encoder.0.self:x' is not a head: write LAYER:NUMBER, for example encoder.1.self:3"
    )
    assert ask("what-if", model="translator", text=TEXT, heads=["encoder.0.self:5"])[0] == 400
    assert ask("what-if", model="writer", text="a")[1] == "a text of one token has no next token to predict; write more"


def test_only_what_a_model_has_can_be_switched_off(ask: Ask) -> None:
    image = base64.b64encode(png()).decode()
    assert ask("what-if", model="translator", text=TEXT)["parts"]["whole"] == ["scale", "mask", "positions"]
    assert ask("what-if", model="eyes", image=image)["parts"]["whole"] == ["scale", "positions"]
    assert ask("what-if", model="critic", text=TEXT)["parts"]["whole"] == ["scale", "positions"]


# --- over held-out examples ---


def measured(studio: TestClient, **body: object) -> list[dict[str, Any]]:
    response = studio.post("/studio/api/what-if/data", json=body)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_the_loss_over_held_out_examples_without_each_head(studio: TestClient, model: Callable[[str], Any]) -> None:
    lines = measured(studio, model="translator", each="heads", batches=1)
    progress = [line for line in lines if "done" in line]
    assert [line["done"] for line in progress] == list(range(progress[-1]["of"] + 1))
    whole, *heads = [line for line in lines if "name" in line]
    batches, loss = builtin_batches(model("translator"), 1)
    expected = importance_by_ablation(model("translator").network, batches, loss)
    assert whole["loss"] == pytest.approx(expected.loss, rel=1e-5)
    found = {head["name"]: head["change"] for head in heads}
    ranked = {f"{layer}:{head}": value for layer, head, value in expected.ranking()}
    assert found == pytest.approx(ranked, rel=1e-3, abs=1e-6)


def test_the_importance_of_heads_after_each_batch(studio: TestClient, model: Callable[[str], Any]) -> None:
    response = studio.post("/studio/api/importance", json={"model": "translator", "batches": 2, "data": "own"})
    _, *found = [json.loads(line) for line in response.text.splitlines()]
    batches, loss = own_batches(model("translator"), 2)
    assert [(each["done"], each["of"]) for each in found] == [(done, len(batches)) for done in range(1, len(found) + 1)]
    for each in found:
        expected = importance_by_gradient(model("translator").network, batches[: each["done"]], loss)
        assert each["data"]["loss"] == pytest.approx(expected.loss, rel=1e-5)
        assert list(each["data"]["heads"]) == list(expected.heads)
        for name, row in expected.heads.items():
            assert each["data"]["heads"][name] == pytest.approx(row.tolist(), rel=1e-3)


def test_what_is_switched_off_is_measured_as_one(studio: TestClient) -> None:
    *_, last = measured(studio, model="translator", layers=["encoder.0"], batches=1)
    assert last["name"] == "chosen"
    assert last["change"] != 0
    [error] = measured(studio, model="translator", layers=["encoder.9"], batches=1)[-1:]
    assert error["error"].startswith("'encoder.9' is not a layer of this model")


def test_held_out_examples_are_a_few_of_those_that_the_training_left_out(model: Callable[[str], Any]) -> None:
    for name in ("translator", "writer"):
        batches, loss = own_batches(model(name), 2)
        expected, _ = model(name).validation_batches(None, 2)
        assert 1 <= len(batches) <= 2
        assert len(batches) <= len(expected)
        with torch.no_grad():
            value, count = loss(model(name).network, batches[0])
        assert torch.isfinite(value)
        assert count > 0


def test_data_that_is_not_on_this_machine_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "origin", lambda _entry: None)
    model = load("digits")
    assert missing_data(model) == ["mnist"]
    with pytest.raises(ProbeError, match="digits was trained on is not on this machine: clearhead data get mnist"):
        own_batches(model, 1)
    with pytest.raises(ProbeError, match=r"digits does not know .* \(their labels are others\): measure on its own"):
        builtin_batches(model, 1)


def test_a_page_measures_first_on_what_is_read_quickly(model: Callable[[str], Any]) -> None:
    found = {name: usual_examples(load(name)) for name in ("digits", "invented")}
    assert found == {"digits": "builtin", "invented": "own"}
    assert usual_examples(model("translator")) == "own"
