"""The routes of the X-ray: the graph first, then the tensors and weights of what is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

from clearhead import Predictor
from clearhead.look.views.steps import examples

from .conftest import Ask

Find = Callable[[str], Predictor]
TEXT = "the old house"


def test_the_graph_comes_first_and_values_as_they_are_opened(ask: Ask, model: Find) -> None:
    expected: Any = model("translator").view("xray", TEXT)
    found = ask("xray", model="translator", text=TEXT)
    assert "values" not in found
    assert list(found["parts"]) == list(expected.graph.parts)
    assert found["output"] == expected.look.output
    assert ask("xray/values", model="translator", text=TEXT, item="decoder.1") == expected.values("decoder.1")
    assert ask("xray", model="translator", text=TEXT, eager=True)["values"] == expected.values("")  # of a small model
    part = "decoder.1.cross.key"
    assert ask("xray/weights", model="translator", text=TEXT, part=part, row=3)["rows"] == expected.weight_row(part, 3)


def test_a_language_model_is_drawn_while_it_generates(ask: Ask, model: Find) -> None:
    found = ask("xray", model="writer", text="a", generate=True)
    assert found["read"] == len(model("writer").prepare("a").prompt)
    assert len(found["axes"]["decoder"]) > found["read"]


def test_what_does_not_exist_is_one_sentence(ask: Ask) -> None:
    status, sentence = ask("xray/values", model="translator", text=TEXT, item="decoder.9")
    assert (status, sentence.split(";")[0]) == (400, "translator has no part decoder.9")
    status, sentence = ask("xray/weights", model="translator", text=TEXT, part="decoder.0.self.scores", row=0)
    assert status == 400
    assert sentence.startswith("decoder.0.self.scores of translator is not computed by a matrix")
    assert ask("xray", model="translator", text=" ")[0] == 400


def test_the_lectures_examples_can_be_opened(studio: TestClient) -> None:
    found = studio.get("/studio/api/steps/examples").json()
    assert [each["name"] for each in found] == [each.name for each in examples()]
    values = {step["name"]: step["value"] for step in found[0]["steps"]["steps"]}
    assert (values["score"], values["scale"]) == ([112, 96], [14, 12])
    assert [round(each, 2) for each in values["softmax"]] == [0.88, 0.12]
