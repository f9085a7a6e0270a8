"""OpenAI's own client, unchanged, against a service on a port."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import openai
import pytest
import torch
from openai import OpenAI

from clearhead import Predictor
from clearhead.serve.chat import as_play

from .conftest import Open

Of = Callable[[str], Predictor]
CONVERSATION = [{"role": "system", "content": "Speak."}, {"role": "user", "content": "Who is there?"}]


@pytest.fixture
def ask(address: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(ask: OpenAI) -> None:
    assert {each.id for each in ask.models.list()} >= {"translator", "writer", "eyes"}
    assert ask.models.retrieve("writer").id == "writer"


def test_completion(ask: OpenAI, model: Of) -> None:
    found = ask.completions.create(model="writer", prompt="we are", max_tokens=9, seed=8, temperature=0.7)
    assert found.object == "text_completion"
    assert "we are" + found.choices[0].text == model("writer").generate("we are", max_tokens=9, seed=8, temperature=0.7)
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (6, 9, 15)


def test_completion_as_a_stream(ask: OpenAI) -> None:
    whole = ask.completions.create(model="writer", prompt=["we", "old house"], max_tokens=11, seed=7, n=2, logprobs=1)
    texts, tokens = ["", "", "", ""], [[], [], [], []]
    finish: dict[int, str] = {}
    for event in ask.completions.create(
        model="writer", prompt=["we", "old house"], max_tokens=11, seed=7, n=2, logprobs=1, stream=True
    ):
        [choice] = event.choices
        texts[choice.index] += choice.text
        tokens[choice.index] += choice.logprobs.tokens
        if choice.finish_reason:
            finish[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert tokens == [choice.logprobs.tokens for choice in whole.choices]
    assert finish == dict.fromkeys(range(4), "length")


def test_chat(ask: OpenAI, model: Of) -> None:
    found = ask.chat.completions.create(model="writer", messages=CONVERSATION, max_completion_tokens=13, seed=5)
    prompt = "SYSTEM:\nSpeak.\n\nUSER:\nWho is there?\n\nASSISTANT:\n"
    assert prompt + found.choices[0].message.content == model("writer").generate(prompt, max_tokens=13, seed=5)
    assert found.choices[0].message.role == "assistant"
    assert found.choices[0].finish_reason == "length"


def test_chat_as_a_stream_with_usage(ask: OpenAI) -> None:
    whole = ask.chat.completions.create(model="writer", messages=CONVERSATION, max_tokens=13, seed=5)
    *events, last = ask.chat.completions.create(
        model="writer",
        messages=CONVERSATION,
        max_tokens=13,
        seed=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(event.choices[0].delta.content or "" for event in events) == whole.choices[0].message.content
    assert events[-1].choices[0].finish_reason == "length"
    assert last.usage == whole.usage


def test_chat_with_log_probabilities(ask: OpenAI, model: Of) -> None:
    found = ask.chat.completions.create(
        model="writer", messages=CONVERSATION, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3
    )
    [choice] = found.choices
    assert "".join(each.token for each in choice.logprobs.content) == choice.message.content
    writer = model("writer")
    prompt = writer.tokenizer.encode("SYSTEM:\nSpeak.\n\nUSER:\nWho is there?\n\nASSISTANT:\n")
    ids = prompt + writer.tokenizer.encode(choice.message.content)
    with torch.inference_mode():
        logp = writer.network(torch.tensor([ids]))[0].log_softmax(-1)[len(prompt) - 1 : -1]  # (5, V)
    best = logp.topk(3)
    for row, each in enumerate(choice.logprobs.content):
        assert [top.logprob for top in each.top_logprobs] == pytest.approx(best.values[row].tolist(), abs=1e-5)
        assert each.logprob == each.top_logprobs[0].logprob
        assert bytes(each.bytes).decode() == each.token
        assert [top.token for top in each.top_logprobs] == writer.tokenizer.pieces(best.indices[row])


def test_a_message_may_come_in_parts_and_speakers_have_names() -> None:
    from clearhead.serve.chat import Message

    parts = [{"type": "text", "text": "Who "}, {"type": "text", "text": "is there?"}]
    said = [Message(role="user", content=parts, name="Hamlet"), Message(role="assistant", content="Nobody.")]
    assert as_play(said) == "HAMLET:\nWho is there?\n\nASSISTANT:\nNobody.\n\nASSISTANT:\n"


def test_embeddings(ask: OpenAI, model: Of) -> None:
    found = ask.embeddings.create(model="vectors", input=["bread", "old house"])
    vectors, tokenizer = model("vectors").network.vectors, model("vectors").tokenizer
    for text, each in zip(["bread", "old house"], found.data, strict=True):
        torch.testing.assert_close(torch.tensor(each.embedding), vectors[tokenizer.encode(text)].mean(0))
    plain = ask.embeddings.create(model="vectors", input="bread", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(found.data[0].embedding)
    assert found.usage.prompt_tokens == 3


@pytest.mark.parametrize("name", ["translator", "writer", "recurrent", "masked", "critic", "learned"])
def test_every_model_that_reads_text_has_vectors(ask: OpenAI, name: str) -> None:
    one, other, none = ask.embeddings.create(model=name, input=["we are", "old bread", ""], dimensions=12).data
    assert len(one.embedding) == len(none.embedding) == 12
    assert one.embedding != other.embedding
    with pytest.raises(openai.BadRequestError, match="have 12 dimensions"):
        ask.embeddings.create(model=name, input="we", dimensions=5)


def test_mistakes_are_the_clients_own_exceptions(ask: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model called 'writr'; did you mean writer") as found:
        ask.completions.create(model="writr", prompt="a")
    assert found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="top_p: input should be greater than 0"):
        ask.chat.completions.create(model="writer", messages=CONVERSATION, top_p=0)


def test_the_clients_key_is_the_token(open_service: Open) -> None:
    with open_service("writer", token="a secret") as address:
        with OpenAI(base_url=f"{address}/v1", api_key="a secret") as ask:
            assert [each.id for each in ask.models.list()] == ["writer"]
        with (
            OpenAI(base_url=f"{address}/v1", api_key="another") as ask,
            pytest.raises(openai.AuthenticationError, match="this service needs its token"),
        ):
            ask.models.list()
