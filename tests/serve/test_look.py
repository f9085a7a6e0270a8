"""`look` beside an answer: the tensors of the network, and the same answer as without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from torch.testing import assert_close

from clearhead import Predictor
from clearhead.look.probes import capture
from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits
from clearhead.serve.server import create_app

Of = Callable[[str], Predictor]
PLAIN = {"banned_tokens": list(range(5))}  # special tokens, whose text is not tokenised as what it stands for
ONE = {"probes": ["decoder.1.self.weights"], "heads": [2]}


def post(client: TestClient, route: str, **body: Any) -> dict[str, Any]:
    answer = client.post(route, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def seen(model: Predictor, text: str, pattern: str, heads: Any = None) -> torch.Tensor:
    """One probe of a text that the network reads at once."""
    ids = torch.tensor([model.tokenizer.encode(text)])
    with torch.no_grad(), capture(model.network, pattern, heads=heads) as found:
        model.network(ids)
    return next(iter(found.values()))[0]


def test_a_completion_with_one_head(client: TestClient, model: Of) -> None:
    body = {"model": "writer", "prompt": "we are", "max_tokens": 9, "seed": 8, **PLAIN}
    plain, found = post(client, "/v1/completions", **body), post(client, "/v1/completions", **body, look=ONE)
    [choice] = found["choices"]
    look = choice.pop("look")
    assert choice == plain["choices"][0]
    text = "we are" + choice["text"]
    assert look["tokens"] == model("writer").token_strings(model("writer").tokenizer.encode(text))
    assert list(look["probes"]) == ["decoder.1.self.weights"]
    weights = torch.tensor(look["probes"]["decoder.1.self.weights"])
    assert weights.shape == (1, 15, 15)
    assert_close(weights, seen(model("writer"), text, "decoder.1.self.weights", 2), atol=1e-4, rtol=1e-4)


def test_a_stream_has_it_with_the_finish_reason(client: TestClient) -> None:
    body = {"model": "writer", "prompt": ["we", "old house"], "n": 2, "max_tokens": 7, "seed": 3, "look": ONE}
    whole = post(client, "/v1/completions", **body)
    texts, looks = ["", "", "", ""], {}
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            [choice] = json.loads(line.removeprefix("data: "))["choices"]
            texts[choice["index"]] += choice["text"]
            assert ("look" in choice) == (choice["finish_reason"] is not None)
            if "look" in choice:
                looks[choice["index"]] = choice["look"]
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert looks == {choice["index"]: choice["look"] for choice in whole["choices"]}


def test_a_chat_and_a_beam_search(client: TestClient, model: Of) -> None:
    messages = [{"role": "user", "content": "Who is there?"}]
    body = {"model": "writer", "messages": messages, "max_tokens": 5, "beams": 3, "n": 2, **PLAIN}
    plain = post(client, "/v1/chat/completions", **body)
    look = {"probes": ["decoder.0.hidden", "logits"]}
    found = post(client, "/v1/chat/completions", **body, look=look)
    prompt = "USER:\nWho is there?\n\nASSISTANT:\n"
    for before, choice in zip(plain["choices"], found["choices"], strict=True):
        probes = choice.pop("look")["probes"]
        assert choice == before
        for name in ("decoder.0.hidden", "logits"):
            whole = seen(model("writer"), prompt + choice["message"]["content"], name)
            assert_close(torch.tensor(probes[name]), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["masked", "critic", "translator"])
def test_embeddings_of_any_model(client: TestClient, model: Of, name: str) -> None:
    texts = ["we are eating bread", "the old house"]
    plain = post(client, "/v1/embeddings", model=name, input=texts)
    found = post(client, "/v1/embeddings", model=name, input=texts, look={"probes": ["encoder.*.self.weights"]})
    for text, before, after in zip(texts, plain["data"], found["data"], strict=True):
        look = after.pop("look")
        assert after == before
        [ids] = model(name).embedding_parts(model(name).tokenizer.encode(text))
        with torch.no_grad(), capture(model(name).network, "encoder.*.self.weights") as expected:
            model(name).token_vectors(torch.tensor([ids]))
        assert look["probes"].keys() == expected.keys()
        assert len(look["tokens"]) == len(ids)
        for probe, weights in expected.items():
            assert_close(torch.tensor(look["probes"][probe]), weights[0], atol=1e-4, rtol=1e-4)


def test_a_text_longer_than_the_window_is_seen_as_it_was_generated(client: TestClient, model: Of) -> None:
    """The model reads in windows: beyond them the weights are 0."""
    writer = model("writer")
    length = writer.config.model.length
    prompt = "we are " * (length // 7 + 3)
    look = {"probes": ["decoder.0.self.weights"], "heads": [0]}
    found = post(client, "/v1/completions", model="writer", prompt=prompt, max_tokens=3, seed=1, look=look)
    weights = torch.tensor(found["choices"][0]["look"]["probes"]["decoder.0.self.weights"][0])
    assert_close(weights.sum(-1), torch.ones(len(weights)), atol=1e-3, rtol=0)
    reach = (weights > 0).sum(-1).max()
    assert reach <= length < len(weights)


def test_a_recurrent_model_has_cells(client: TestClient) -> None:
    body = {"model": "recurrent", "prompt": "we", "max_tokens": 3, "seed": 1}
    found = post(client, "/v1/completions", **body, look={"probes": ["decoder.0.cell.hidden"]})
    assert torch.tensor(found["choices"][0]["look"]["probes"]["decoder.0.cell.hidden"]).shape == (5, 12)


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (
            {"probes": ["decoder.9.self.weights"]},
            "this model has no decoder.9.self.weights: after decoder comes 0 to 1",
        ),
        ({"probes": ["decoder.0.self.weights"], "heads": [3]}, "decoder.0.self has no head 3; choose from 0 to 2"),
        ({"probes": []}, "look.probes: list should have at least 1 item"),
        ({"heads": [1]}, "look.probes: field required"),
        ({"probes": ["logits"], "head": 1}, "look.head: there is no such field here; did you mean heads?"),
    ],
)
def test_what_cannot_be_seen_is_refused(client: TestClient, look: dict[str, Any], message: str) -> None:
    answer = client.post("/v1/completions", json={"model": "writer", "prompt": "we", "max_tokens": 3, "look": look})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_a_decoder_takes_no_part_in_a_vector(client: TestClient) -> None:
    body = {"model": "translator", "input": "we are", "look": {"probes": ["*.0.self.weights"]}}
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message == "look: translator computes only encoder.0.self.weights of these for this"


def test_the_size_is_limited_before_anything_is_generated(runs: list[str]) -> None:
    """3 heads × (6 + 9)² is one number more than the limit; 2 heads are not."""
    service = Service.load([run for run in runs if run.endswith("writer")], Limits(numbers=3 * 15 * 15 - 1))
    client = TestClient(create_app(service, Access()), base_url="http://127.0.0.1:8000")
    body = {"model": "writer", "prompt": "we are", "max_tokens": 9}
    post(client, "/v1/completions", **body, look={"probes": ["decoder.1.self.weights"], "heads": [0, 2]})
    answer = client.post("/v1/completions", json={**body, "look": {"probes": ["decoder.1.self.weights"]}})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == (
        "look: 675 numbers may be returned, and the limit is 674: name fewer probes or heads, or send shorter texts"
    )
    service.close()


def test_other_clients_get_their_texts(client: TestClient, model: Of) -> None:
    """While some requests look, with hooks in the network, the others are answered as if alone."""

    def ask(number: int) -> str:
        look = {"look": {"probes": ["decoder.*"]}} if number % 2 else {}
        body = {"model": "writer", "prompt": "we are", "max_tokens": 17, "seed": number, **look}
        return str(post(client, "/v1/completions", **body)["choices"][0]["text"])

    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(ask, range(12)))
    for number, text in enumerate(texts):
        assert "we are" + text == model("writer").generate("we are", max_tokens=17, seed=number)
    assert not any(part._forward_hooks or "forward" in vars(part) for part in model("writer").network.modules())
