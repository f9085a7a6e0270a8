"""Tokens, probabilities and alternatives are those of the model."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.serve.setting import png

from clearhead import Predictor
from clearhead.serve.registry import Service

from .conftest import Ask

Find = Callable[[str], Predictor]
TEXT = "the old house"


def test_a_translation_comes_token_by_token_and_is_the_greedy_one(lines: Ask, model: Find) -> None:
    *tokens, end = lines(model="translator", text=TEXT, longest=11)
    assert end["text"] == model("translator").translate(TEXT, beam_width=1, max_tokens=11)
    assert end["end"] in ("stop", "length")
    assert tokens[-1]["text"] == end["text"]


def test_probabilities_are_those_of_the_network(lines: Ask, model: Find) -> None:
    *tokens, _ = lines(model="writer", text="abc", longest=5)
    network, vocabulary = model("writer").network, model("writer").tokenizer
    ids = vocabulary.encode("abc")
    for line in tokens:
        with torch.inference_mode():
            expected = network(torch.tensor([ids]))[0, -1].softmax(-1)
        token = line["token"]
        assert math.isclose(token["probability"], float(expected[token["id"]]), rel_tol=1e-4)
        best = expected.topk(8).indices.tolist()
        assert [each["id"] for each in token["alternatives"]] == best
        ids.append(token["id"])


def test_it_continues_from_a_chosen_token(lines: Ask) -> None:
    *first, _ = lines(model="writer", text="abc", longest=5)
    other = first[1]["token"]["alternatives"][3]["id"]
    *second, _ = lines(model="writer", text="abc", longest=5, forced=[first[0]["token"]["id"], other])
    assert [line["token"]["id"] for line in second[:2]] == [first[0]["token"]["id"], other]
    assert second[1]["token"]["probability"] < first[1]["token"]["probability"]
    assert len(second) == 5


def test_the_same_seed_draws_the_same_text(lines: Ask) -> None:
    drawn = [lines(model="writer", text="abc", longest=17, temperature=1.0, seed=seed)[-1] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_labels_come_in_one_line_best_first(lines: Ask, model: Find) -> None:
    [line] = lines(model="critic", text=TEXT)
    expected = model("critic").classify(TEXT).probabilities
    assert dict(line["labels"]) == expected
    assert [share for _, share in line["labels"]] == sorted(expected.values(), reverse=True)
    assert line["prediction"] == {"label": model("critic").classify(TEXT).label, "probabilities": expected}


def test_an_image_is_labelled(lines: Ask) -> None:
    [line] = lines(model="eyes", image=base64.b64encode(png()).decode())
    assert len(line["labels"]) == 7


def test_invalid_input_is_one_sentence(ask: Ask, lines: Ask, model: Find) -> None:
    assert ask("play", model="nobody", text="a")[0] == 404
    assert ask("play", model="writer", text="  ") == (400, "the text for writer is empty: write something")
    assert ask("play", model="eyes", text="a") == (400, "eyes reads an image: draw or drop one")
    assert "vocabulary" in lines(model="writer", text="abc", forced=[99_999])[0]["error"]
    assert lines(model="masked", text="abc") == [{"prediction": {"text": model("masked").fill_in("abc")}}]


def test_a_stream_that_fails_ends_with_the_reason(
    lines: Ask, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = service.models["writer"]
    with monkeypatch.context() as patched:
        patched.setattr(served.worker, "limits", replace(served.limits, queue=0))
        [full] = lines(model="writer", text="abc", longest=5)
    assert full["error"].startswith("writer is busy: its queue has room for 0 more and the request has 1")
    monkeypatch.setattr(served, "limits", replace(served.limits, seconds=0.0))
    [late] = lines(model="writer", text="abc", longest=5)
    assert late["error"] == "this took longer than 0 seconds; ask for less at a time"
