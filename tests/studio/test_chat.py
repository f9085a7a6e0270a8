"""Chats: an answer token by token with its alternatives, and what each token looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from clearhead import Predictor
from clearhead.look.probes import capture
from clearhead.text.chat_template import encode_chat

from .conftest import Ask

MESSAGES = [{"role": "user", "content": "who is there"}]


def chat(studio: TestClient, **body: Any) -> list[dict[str, Any]]:
    response = studio.post("/studio/api/chat", json={"model": "writer", "messages": MESSAGES, "longest": 7, **body})
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_the_answer_comes_token_by_token_and_a_prefix_can_be_forced(studio: TestClient) -> None:
    *lines, last = chat(studio)
    ids = [line["token"]["id"] for line in lines]
    assert last["text"] == lines[-1]["text"]
    other = next(each["id"] for each in lines[2]["token"]["alternatives"] if each["id"] != ids[2])
    again = [line["token"]["id"] for line in chat(studio, forced=[*ids[:2], other])[:-1]]
    assert again[:3] == [*ids[:2], other]
    assert sum(each["probability"] for each in lines[0]["token"]["alternatives"]) <= 1 + 1e-6


def test_a_token_shows_where_all_heads_looked_when_it_was_chosen(
    studio: TestClient, ask: Ask, model: Callable[[str], Predictor]
) -> None:
    *lines, _ = chat(studio)
    forced = [line["token"]["id"] for line in lines]
    found = ask("chat/attention", model="writer", messages=MESSAGES, forced=forced, token=3)
    loaded: Any = model("writer")
    ids = [*encode_chat(loaded.tokenizer, loaded.chat_template, MESSAGES), *forced[:3]]
    with torch.inference_mode(), capture(loaded.network, "decoder.*.self.weights") as seen:
        loaded.network(torch.tensor([ids]))
    expected = torch.stack([weights[0, :, -1] for weights in seen.values()]).mean((0, 1))
    assert found["shares"] == pytest.approx(expected.tolist(), abs=1e-4)
    assert len(found["pieces"]) == len(ids)
    assert ask("chat/attention", model="writer", messages=MESSAGES, forced=forced, token=99)[1] == (
        f"the answer has {len(forced)} tokens, and none is number 99"
    )


def test_a_translator_cannot_chat(ask: Ask) -> None:
    body = {"model": "translator", "messages": MESSAGES}
    assert ask("chat", **body) == (400, "translator is not a language model: it cannot chat")
