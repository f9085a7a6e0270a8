"""Models from elsewhere over HTTP: they answer what the original computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from tests.interop.originals import ORIGINALS
from tests.optional import optional
from torch.testing import assert_close

from clearhead.interop.importing import import_model
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.serve.server import create_app

optional("transformers", reason="the originals are built by transformers")

TEMPLATE = "{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}assistant:"
NAMES = {"llama": "llama", "bert": "bert", "critic": "bert classify", "decider": "gpt2 classify", "tagger": "bert tag"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By name: the original model of `transformers`, beside its folder."""
    folder = tmp_path_factory.mktemp("imported")
    found = {name: (ORIGINALS[original].save(folder / name), folder / name) for name, original in NAMES.items()}
    (folder / "llama" / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def service(originals: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    runs: Path = tmp_path_factory.mktemp("runs")
    for name, (_, folder) in originals.items():
        import_model(folder, runs / name)
    service = Service.load([str(runs / name) for name in originals])
    yield service
    service.close()


@pytest.fixture(scope="module")
def client(service: Service) -> TestClient:
    return TestClient(create_app(service, Access()), base_url="http://127.0.0.1:8000")


def post(client: TestClient, route: str, **body: Any) -> Any:
    answer = client.post(route, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_completion_is_the_text_of_the_original(client: TestClient, service: Service, originals: Any) -> None:
    theirs, own = originals["llama"][0], service.models["llama"].model.tokenizer
    ids = torch.tensor([own.encode("we are eating")])
    written = theirs.generate(ids, max_new_tokens=9, do_sample=False, pad_token_id=0)[0].tolist()
    asked = {"model": "llama", "max_tokens": 9, "temperature": 0}
    [of_text] = post(client, "/v1/completions", prompt="we are eating", **asked)["choices"]
    [of_ids] = post(client, "/v1/completions", prompt=ids[0].tolist(), **asked)["choices"]
    assert of_text == of_ids
    assert "we are eating" + of_text["text"] == own.decode(written)


def test_a_scored_prompt_has_the_log_probabilities_of_the_original(
    client: TestClient, service: Service, originals: Any
) -> None:
    """The request that lm-evaluation-harness sends for a context and its continuation."""
    theirs, own = originals["llama"][0], service.models["llama"].model.tokenizer
    ids = own.encode("we are eating bread and the dog")
    asked = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    [choice] = post(client, "/v1/completions", model="llama", prompt=[ids], **asked)["choices"]
    with torch.no_grad():
        logprobs = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = [float(logprobs[place - 1, ids[place]]) for place in range(1, len(ids))]
    found = choice["logprobs"]
    assert found["token_logprobs"][0] is None
    assert_close(torch.tensor(found["token_logprobs"][1 : len(ids)]), torch.tensor(expected), atol=1e-4, rtol=1e-4)
    best = [max(each.values()) for each in found["top_logprobs"][1 : len(ids)]]
    assert_close(torch.tensor(best), logprobs[:-1].max(-1).values, atol=1e-4, rtol=1e-4)


def test_a_chat_uses_the_template_of_the_folder(client: TestClient, service: Service) -> None:
    model, messages = service.models["llama"].model, [{"role": "user", "content": "we are"}]
    prompt = "user: we are\nassistant:"
    [choice] = post(
        client, "/v1/chat/completions", model="llama", messages=messages, max_completion_tokens=7, temperature=0
    )["choices"]
    assert prompt + choice["message"]["content"] == model.generate(prompt, max_tokens=7, temperature=0.0)


def test_embeddings_are_the_mean_of_the_hidden_states(client: TestClient, service: Service, originals: Any) -> None:
    theirs, model = originals["bert"][0], service.models["bert"].model
    texts = ["we are eating bread", "a small cat"]
    found = post(client, "/v1/embeddings", model="bert", input=texts)["data"]
    for text, each in zip(texts, found, strict=True):
        own = model.tokenizer
        ids = torch.tensor([[*own.prefix, *own.encode(text), *own.suffix]])
        with torch.no_grad():
            expected = theirs(ids).last_hidden_state[0].mean(0)
        assert_close(torch.tensor(each["embedding"]), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["critic", "decider"])
def test_classes_are_those_of_the_original(client: TestClient, service: Service, originals: Any, name: str) -> None:
    theirs, own = originals[name][0], service.models[name].model.tokenizer
    found = post(client, "/classify", model=name, text="we are eating bread")
    ids = torch.tensor([[*own.prefix, *own.encode("we are eating bread"), *own.suffix]])
    with torch.no_grad():
        expected = theirs(ids).logits[0].softmax(-1)
    assert list(found["probabilities"]) == ["no", "perhaps", "yes"]
    assert_close(torch.tensor(list(found["probabilities"].values())), expected, atol=1e-4, rtol=1e-4)


def test_tags_are_those_of_the_model(client: TestClient, service: Service) -> None:
    found = post(client, "/tag", model="tagger", text="we are eating bread")
    assert [tuple(each) for each in found["tags"]] == service.models["tagger"].model.tag("we are eating bread")


def test_attention_is_returned_beside_an_answer(client: TestClient, originals: Any, service: Service) -> None:
    look = {"probes": ["decoder.2.self.weights"], "heads": [4]}
    [choice] = post(client, "/v1/completions", model="llama", prompt="we are", max_tokens=3, seed=1, look=look)[
        "choices"
    ]
    weights = torch.tensor(choice["look"]["probes"]["decoder.2.self.weights"])
    own = service.models["llama"].model.tokenizer
    assert weights.shape[-1] == len(choice["look"]["tokens"]) == len(own.encode("we are")) + 3
    assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-3, rtol=0)
