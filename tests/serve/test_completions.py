"""Log-probabilities, stops, seeds and prompts of /v1/completions, each against the model itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from clearhead import Predictor

Of = Callable[[str], Predictor]


def complete(client: TestClient, status: int = 200, **body: Any) -> Any:
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()["choices"] if status == 200 else answer.json()["error"]["message"]


def log_probabilities(model: Predictor, ids: list[int]) -> torch.Tensor:
    """(T, V): of what follows each token, in one forward without a cache."""
    with torch.inference_mode():
        return model.network(torch.tensor([ids]))[0].log_softmax(-1)


@pytest.mark.parametrize("name", ["writer", "recurrent", "learned"])
def test_echo_gives_the_log_probabilities_of_the_prompt(client: TestClient, model: Of, name: str) -> None:
    prompt = "we are eating"
    ids = model(name).tokenizer.encode(prompt)
    logp = log_probabilities(model(name), ids)
    [choice] = complete(client, model=name, prompt=prompt, max_tokens=0, echo=True, logprobs=3)
    told = choice["logprobs"]
    assert choice["text"] == prompt
    assert choice["finish_reason"] == "length"
    assert told["token_logprobs"][0] is None
    wanted = logp[torch.arange(len(ids) - 1), ids[1:]]
    torch.testing.assert_close(torch.tensor(told["token_logprobs"][1:]), wanted)
    best = torch.tensor([max(top.values()) for top in told["top_logprobs"][1:]])
    torch.testing.assert_close(best, logp[:-1].max(-1).values)
    assert "".join(told["tokens"]) == prompt
    assert told["text_offset"] == [len("".join(told["tokens"][:i])) for i in range(len(ids))]


def test_a_harness_finds_the_likelihood_of_each_continuation(client: TestClient, model: Of) -> None:
    """As lm-evaluation-harness asks: rows of ids, one token more, the sum from the context on without that token."""
    writer = model("writer")
    pairs = [("we are ", "eating"), ("the old house", " with a"), ("a", "b"), ("Who", " is there?\n" * 5)]
    encoded = [(writer.tokenizer.encode(context), writer.tokenizer.encode(more)) for context, more in pairs]
    rows = [context + more for context, more in encoded]
    asked = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    choices = complete(client, model="writer", prompt=rows, **asked)
    for (context, more), row, choice in zip(encoded, rows, choices, strict=True):
        told = choice["logprobs"]
        own, top = (told[key][len(context) : -1] for key in ("token_logprobs", "top_logprobs"))
        logp = log_probabilities(writer, row)[len(context) - 1 : -1]  # (tokens of the continuation, V)
        wanted = logp[torch.arange(len(more)), more].sum()
        torch.testing.assert_close(torch.tensor(sum(own)), wanted)
        is_greedy = all(each == max(best.values()) for each, best in zip(own, top, strict=True))
        assert is_greedy == (logp.argmax(-1).tolist() == more)


def test_the_greedy_continuation_of_a_text_is_seen_as_greedy(client: TestClient) -> None:
    [first] = complete(client, model="writer", prompt="we are ", max_tokens=11, temperature=0)
    [whole] = complete(client, model="writer", prompt="we are " + first["text"], max_tokens=0, echo=True, logprobs=1)
    told = whole["logprobs"]
    assert told["token_logprobs"][7:] == [max(top.values()) for top in told["top_logprobs"][7:]]


def test_a_seed_gives_the_text_of_the_model(client: TestClient, model: Of) -> None:
    settings: dict[str, Any] = {"max_tokens": 17, "temperature": 0.9, "top_p": 0.8, "seed": 3}
    wanted = model("writer").generate("we are", **settings)
    several = complete(client, model="writer", prompt="we are", n=3, **settings)
    assert "we are" + several[0]["text"] == wanted
    assert len({choice["text"] for choice in several}) == 3
    assert [choice["index"] for choice in several] == [0, 1, 2]
    again = complete(client, model="writer", prompt="we are", n=3, **settings)
    assert again == several


def test_prompts_of_unequal_lengths_are_each_as_alone(client: TestClient) -> None:
    prompts = ["a", "we are eating bread", "", "the old house with a small red door is near"]
    asked = {"model": "writer", "max_tokens": 13, "temperature": 0, "logprobs": 2, "echo": True}
    together = complete(client, prompt=prompts, **asked)
    for prompt, choice in zip(prompts, together, strict=True):
        [alone] = complete(client, prompt=prompt, **asked)
        assert choice["text"] == alone["text"]
        assert choice["text"].startswith(prompt)
        told = zip(*(each["logprobs"]["token_logprobs"] for each in (choice, alone)), strict=True)
        assert all(a == b or a == pytest.approx(b, abs=1e-5) for a, b in told)


def test_a_text_ends_before_a_stop_string(client: TestClient) -> None:
    asked = {"model": "writer", "prompt": "we", "max_tokens": 40, "temperature": 0, "logprobs": 0}
    [free] = complete(client, **asked)
    stop = free["text"][5:8]
    place = free["text"].index(stop)
    [ended] = complete(client, stop=["never there", stop], **asked)
    assert (ended["text"], ended["finish_reason"]) == (free["text"][:place], "stop")
    assert ended["logprobs"]["tokens"] == free["logprobs"]["tokens"][:place]
    assert free["finish_reason"] == "length"


def test_the_stop_token_ends_a_text(client: TestClient, model: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"model": "writer", "prompt": "we", "max_tokens": 9, "temperature": 0}
    [free] = complete(client, **asked)
    writer = model("writer")
    third = writer.tokenizer.encode(free["text"])[2]
    place = writer.tokenizer.encode(free["text"]).index(third)
    monkeypatch.setattr(writer.tokenizer, "stop", third)
    [ended] = complete(client, **asked)
    assert (ended["text"], ended["finish_reason"]) == (free["text"][:place], "stop")


def test_a_long_prompt_is_read_in_parts(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"model": "writer", "prompt": "we are eating bread. " * 9, "max_tokens": 3, "echo": True, "logprobs": 1}
    [whole] = complete(client, temperature=0, **asked)
    monkeypatch.setattr("clearhead.decode.stepper.PART", 11)
    [parts] = complete(client, temperature=0, **asked)
    assert parts["text"] == whole["text"]
    assert parts["logprobs"]["token_logprobs"][1:] == pytest.approx(whole["logprobs"]["token_logprobs"][1:], abs=1e-5)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"model": "learned", "prompt": "we are", "max_tokens": 22}, "learned reads 23 tokens at most, and there are"),
        ({"prompt": "a" * 490, "max_tokens": 11}, "writer reads 500 tokens at most, and there are 501: 490 of"),
        ({"prompt": ["a"] * 128, "max_tokens": 65}, "8,320 tokens are more than the 8,192 of one request"),
        ({"prompt": ["a"] * 9, "n": 15}, "n: the request has 135 texts; the limit is 128: split it into several"),
        ({"prompt": [3, 100000]}, "prompt: there is no token 100000: the vocabulary of writer has "),
        ({"prompt": []}, "prompt: there is nothing to answer: the list is empty"),
        ({"prompt": "a", "stop": [""]}, "stop."),
        ({"prompt": "a", "temperature": 3}, "temperature: input should be less than or equal to 2"),
        ({"prompt": "a", "presence_penalty": 3}, "presence_penalty: input should be less than or equal to 2"),
        ({"prompt": "a", "suffix": "b"}, "suffix: this service does not support it; leave it out"),
    ],
)
def test_invalid_requests_are_refused(client: TestClient, body: dict[str, Any], sentence: str) -> None:
    assert complete(client, 400, **{"model": "writer", **body}).startswith(sentence)


def test_null_means_the_default(client: TestClient) -> None:
    asked = {"model": "writer", "prompt": "we", "temperature": 0}
    nulls = {"stop": None, "max_tokens": None, "logprobs": None, "n": None, "stream": None, "user": None}
    assert complete(client, **asked, **nulls) == complete(client, **asked)
