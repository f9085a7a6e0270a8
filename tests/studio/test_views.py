"""The data of each view is what `clearhead.look` computes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

import clearhead
from clearhead import Predictor
from clearhead.look.views.positions import positions
from clearhead.nn import SinusoidalPositions
from clearhead.studio.lessons import LESSONS
from clearhead.studio.what_if import WhatIfBody, switched_off

from .conftest import Ask

Find = Callable[[str], Predictor]
TEXT = "the old house"


def test_models_are_described_by_what_they_can_do(studio: TestClient) -> None:
    found = {each["name"]: each for each in studio.get("/studio/api/models").json()}
    assert {name for name, each in found.items() if each["writes"]} == {
        "learned",
        "painter",
        "recurrent",
        "translator",
        "writer",
    }
    assert all(each["generates"] == each["writes"] for each in found.values())
    assert {name: each["reads"] for name, each in found.items() if each["reads"] != "text"} == {
        "eyes": "image",
        "painter": "image",
        "vectors": "words",
    }
    assert {name for name, each in found.items() if each["continues"]} == {"learned", "recurrent", "writer"}
    assert found["critic"]["verb"] == "classify"
    assert found["eyes"]["image"] == {"side": 10, "channels": 1}
    assert not found["vectors"]["attends"]
    assert found["translator"]["attends"]
    assert found["translator"]["examples"][0] == "She has a red car."
    assert found["eyes"]["examples"] == []


def test_steps_are_those_of_the_look(ask: Ask, model: Find) -> None:
    place = {"kind": "decoder.cross", "layer": 1, "head": 2, "query": 0}
    expected = model("translator").look(TEXT, beam_width=1).steps(1, 2, 0, "decoder.cross").to_json()  # as in Play
    assert ask("steps", model="translator", text=TEXT, **place) == expected


def test_a_missing_layer_is_one_sentence(ask: Ask) -> None:
    status, sentence = ask("steps", model="translator", text=TEXT, kind="decoder.cross", layer=7)
    assert (status, sentence) == (400, "decoder.cross of translator has no layer 7; choose from 0 to 1")


def test_each_node_of_a_beam_has_its_text(ask: Ask) -> None:
    found = ask("beam", model="translator", text=TEXT, beams=3)
    assert len(found["texts"]) == len(found["nodes"])
    by_id = {node["id"]: node for node in found["nodes"]}
    node, words = by_id[found["best"]], []
    while node["parent"] is not None:
        words.insert(0, node["token"])
        node = by_id[node["parent"]]
    assert found["texts"][found["best"]] == " ".join(word for word in words if word != "[STOP]")
    assert ask("beam", model="critic", text=TEXT) == (400, "critic does not generate, so it has no beams")


def test_cells_show_the_requested_unit(ask: Ask) -> None:
    text = "First Line\n  second (one)\nThird"
    found = ask("cells", model="writer", text=text)
    assert "".join(found["tokens"]) == text.replace("(", "[UNK]").replace(")", "[UNK]")
    assert {"layer": found["layer"], "unit": found["unit"]}.items() <= found["ranking"][0].items()
    unit = 5 if found["unit"] != 5 else 6
    other = ask("cells", model="writer", text=text, layer="decoder.1.hidden", unit=unit)
    assert (other["layer"], other["unit"]) == ("decoder.1.hidden", unit)
    assert other["values"] != found["values"]
    assert ask("cells", model="critic", text=TEXT)[0] == 400


def test_sinusoidal_positions_have_the_requested_base_and_width(ask: Ask) -> None:
    found = ask("positions", base=50, width=6, length=11)
    expected = SinusoidalPositions(6, 50.0).encode(11)
    assert found["vectors"] == [pytest.approx(row, abs=1e-4) for row in expected.tolist()]
    assert found["by_distance"][0] == [pytest.approx(v, abs=1e-3) for v in _by_distance(expected)]


def _by_distance(vectors: object) -> list[float]:
    products = vectors @ vectors.T  # type: ignore[operator, attr-defined]
    return [float(products.diagonal(-distance).mean()) for distance in range(len(products))]


def test_positions_of_a_model(ask: Ask, model: Find) -> None:
    found = ask("positions", model="learned")
    [(name, expected)] = positions(model("learned").network).items()
    assert found == {"name": name, **expected.to_json()}


def test_words_have_their_neighbours(ask: Ask, model: Find) -> None:
    found = ask("words", model="vectors", words=["bread", "house"], neighbours=3)
    assert found["near"]["bread"] == [list(each) for each in model("vectors").neighbours("bread", 3)]
    assert {"bread", "house"} <= set(found["words"])
    assert len(found["points"]) == len(found["words"])
    assert "'nonesuch' is not among the" in ask("words", model="vectors", words=["nonesuch"])[1]
    assert (
        "cannot answer questions about words: it is a translator"
        in ask("words", model="translator", words=["bread"])[1]
    )


def test_an_analogy_is_that_of_the_model(ask: Ask, model: Find) -> None:
    found = ask("analogy", model="vectors", a="bread", b="water", c="door")
    assert found["nearest"] == [list(each) for each in model("vectors").analogy("bread", "water", "door")]


def test_a_patch_embedding_has_components(ask: Ask) -> None:
    found = ask("components", model="eyes")
    assert [len(found["components"]), len(found["components"][0])] == [4, 2]
    assert sum(found["shares"]) == pytest.approx(1, abs=1e-3)


def test_every_idea_has_its_code(studio: TestClient) -> None:
    ideas = studio.get("/studio/api/ideas").json()
    assert len({idea["title"] for idea in ideas}) == len(ideas) >= 15
    for idea in ideas:
        assert re.match(r"(@.+\n)*(def|class) ", idea["source"]), idea["title"]
        assert idea["file"].endswith(".py")


def test_the_attention_is_that_of_the_answer_in_play(ask: Ask, model: Find) -> None:
    found = ask("look", model="translator", text=TEXT)
    assert found["output"] == model("translator").translate(TEXT, beam_width=1)
    given = ask("look", model="translator", text=TEXT, target="bread and water")
    assert given["output"] != found["output"] or given["tokens"] != found["tokens"]


PAGES = {
    "lens": ("translator", "clearhead-lens-1"),
    "relevance": ("translator", "clearhead-relevance-1"),
    "gradients": ("critic", "clearhead-gradients-1"),
    "flow": ("translator", "clearhead-flow-1"),
    "scaling": ("translator", "clearhead-scaling-1"),
    "induction": ("writer", "clearhead-induction-1"),
}


@pytest.mark.parametrize("view", PAGES)
def test_every_view_comes_as_its_page_reads_it(ask: Ask, view: str) -> None:
    name, expected = PAGES[view]
    found = ask("view", model=name, view=view, text=TEXT, form="page")
    assert found["data"]["format"] == expected
    assert set(found) == {"view", "data"}


def test_the_relevance_of_another_answer(ask: Ask) -> None:
    last = ask("view", model="translator", view="relevance", text=TEXT, form="page")["data"]
    first = ask("view", model="translator", view="relevance", text=TEXT, form="page", query=0)["data"]
    assert (first["query"], last["query"]) == (0, len(last["rows"]) - 1)
    assert len(first["values"]) == len(first["tokens"])
    assert first["values"] != last["values"]


def test_the_flow_of_a_long_text_is_refused(ask: Ask) -> None:
    status, sentence = ask("view", model="translator", view="flow", text="the old house " * 20, form="page")
    assert status == 400
    assert sentence.startswith("a flow of 6")
    assert sentence.endswith("tokens takes minutes; the limit of the page is 32: shorten the text")


def test_a_unit_is_measured_on_text_that_it_was_not_chosen_on(ask: Ask) -> None:
    found = ask(
        "cells",
        model="writer",
        text="First Line\n  second one\nThird and Fourth\nA house (of water)\nin the old Door\nbread\n",
    )
    best = found["ranking"][0]
    assert best["held_out"] is not None
    assert best["held_out"] != best["correlation"]
    assert [abs(each["held_out"]) for each in found["ranking"]] == sorted(
        (abs(each["held_out"]) for each in found["ranking"]), reverse=True
    )


def test_every_example_of_a_switch_changes_the_answer() -> None:
    translator = clearhead.load("en-es")
    off = {"scale": False, "mask": False, "positions": False, "layers": [], "heads": []}
    shown = [(lesson.state["text"], json.loads(lesson.state["off"])) for lesson in LESSONS if lesson.view == "what-if"]
    assert len(shown) == 3
    for text, parts in shown:
        whole = translator.translate(text, beam_width=1)
        with switched_off(translator.network, WhatIfBody(model="en-es", text=text, **{**off, **parts})):
            assert translator.translate(text, beam_width=1) != whole, parts
