"""Switching parts off changes the answer, and they are on again afterwards."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
import torch
from tests.serve.setting import png
from torch.nn import functional as F

from clearhead import Predictor

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
