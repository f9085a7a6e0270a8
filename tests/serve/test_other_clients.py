"""What clients send that were written for other services: fields, forms, headers and addresses.

A field that changes no answer is taken; one that would change it is refused, and the error names it.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import openai
import pytest
from openai import OpenAI
from starlette.testclient import TestClient

from clearhead import Predictor
from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits
from clearhead.serve.server import create_app

from .conftest import Open
from .setting import png
from .test_clients import metric, place

Of = Callable[[str], Predictor]
WRITE: dict[str, Any] = {"model": "writer", "prompt": "we are", "max_tokens": 4, "temperature": 0}
TALK: dict[str, Any] = {
    "model": "writer",
    "messages": [{"role": "user", "content": "we"}],
    "max_completion_tokens": 4,
    "temperature": 0,
}


def post(client: TestClient, route: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = client.post(route, json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def complete(client: TestClient, **body: Any) -> Any:
    return post(client, "/v1/completions", **{**WRITE, **body})["choices"]


def chat(client: TestClient, **body: Any) -> Any:
    return post(client, "/v1/chat/completions", **{**TALK, **body})["choices"]


def refusal(client: TestClient, route: str, **body: Any) -> tuple[str, str | None]:
    """The sentence of an error, and the field that it names."""
    error = post(client, route, 400, **body)["error"]
    return error["message"], error["param"]


# --- fields ---


def test_fields_that_change_nothing_are_taken(client: TestClient) -> None:
    neutral = {"metadata": {"run": "7"}, "store": False, "service_tier": "auto", "user": "me", "prompt_cache_key": "k"}
    completion = {"best_of": 1, "suffix": "", "logit_bias": {}}
    assert complete(client, **neutral, **completion) == complete(client)
    conversation = {
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": False,
        "stream_options": {"include_obfuscation": False},
    }
    assert chat(client, **neutral, **conversation) == chat(client)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", {"type": "json_object"}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("reasoning_effort", "low"),
        ("audio", {"voice": "alloy", "format": "wav"}),
    ],
)
def test_a_field_that_would_change_the_answer_is_refused(client: TestClient, field: str, value: Any) -> None:
    sentence = f"{field}: this service does not support it; leave it out"
    assert refusal(client, "/v1/chat/completions", **TALK, **{field: value}) == (sentence, field)


def test_an_unknown_field_is_named_with_what_to_do(client: TestClient) -> None:
    assert refusal(client, "/v1/completions", **WRITE, max_token=3) == (
        "max_token: there is no such field here; did you mean max_tokens?",
        "max_token",
    )
    sentence, _ = refusal(client, "/v1/completions", **WRITE, frames=3)
    assert sentence.endswith("leave it out (/openapi.json lists all fields)")
    sentence, _ = refusal(client, "/classify", model="critic", file="we are")
    assert sentence == "file: there is no such field here; choose from: image, model, text"
    broken = client.post("/classify", content=b'{"\\ud800\\n": 1}')  # a name that is no text
    assert (broken.status_code, broken.json()["error"]["param"]) == (400, "?")
    assert complete(client, unknown=None) == complete(client)


def test_a_bias_of_minus_100_bans_a_token_and_others_are_refused(client: TestClient, model: Of) -> None:
    first = complete(client, max_tokens=1)[0]["text"]
    [token] = model("writer").tokenizer.encode(first)
    assert (
        complete(client, logit_bias={str(token): -100}) == complete(client, banned_tokens=[token]) != complete(client)
    )
    sentence, param = refusal(client, "/v1/completions", **WRITE, logit_bias={"99999": -100})
    assert (sentence.startswith("logit_bias: there is no token 99999 in the"), param) == (True, "logit_bias")
    wrong = {"1": "only -100", "x": "it must be an object", "-1": "it must be an object"}
    for name, begins in wrong.items():
        sentence, param = refusal(client, "/v1/completions", **WRITE, logit_bias={name: 5})
        assert (sentence.startswith(f"logit_bias: {begins}"), param) == (True, "logit_bias")


def test_best_of_is_n(client: TestClient) -> None:
    assert len(complete(client, n=2, best_of=2)) == 2
    assert refusal(client, "/v1/completions", **WRITE, best_of=3)[0].startswith("best_of: it must be n, which is 1;")


def test_alternatives_need_log_probabilities(client: TestClient) -> None:
    sentence = "top_logprobs: it needs logprobs: true"
    assert refusal(client, "/v1/chat/completions", **TALK, top_logprobs=2) == (sentence, "top_logprobs")


def test_of_two_limits_the_lower_counts(client: TestClient) -> None:
    for limits in ({"max_tokens": 2}, {"max_tokens": 9, "max_completion_tokens": 2}):
        body = {**TALK, **limits}
        assert post(client, "/v1/chat/completions", **body)["usage"]["completion_tokens"] == 2


def test_a_long_prompt_gets_what_the_context_leaves(client: TestClient) -> None:
    long = [{"role": "user", "content": "a" * 400}]  # of 500 tokens, and an answer has 256 by default
    usage = post(client, "/v1/chat/completions", model="writer", messages=long, temperature=0)["usage"]
    assert usage["total_tokens"] <= 500
    usage = post(client, "/v1/completions", model="writer", prompt="a" * 490, temperature=0)["usage"]
    assert usage["total_tokens"] <= 500
    sentence, _ = refusal(client, "/v1/completions", model="writer", prompt="a" * 490, max_tokens=11)
    assert sentence.endswith("490 of the prompt and 11 to generate; shorten the prompt or ask for fewer")


def test_messages_as_a_harness_and_other_programs_send_them(client: TestClient) -> None:
    [wanted] = chat(client)
    tagged = [{"role": "user", "content": "we", "type": "text"}]
    assert chat(client, messages=tagged) == [wanted]
    answer = {**wanted["message"], "refusal": None, "tool_calls": None, "annotations": [], "audio": None}
    assert chat(client, messages=[*TALK["messages"], answer, {"role": "user", "content": "are"}])


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]},
            "messages.0.content.1: this service reads text only: the type of a part must be text",
        ),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages.0.tool_calls: this service does not support it"),
        ({"role": "tool", "tool_call_id": "1", "content": "a"}, "messages.0.tool_call_id: this service does not"),
    ],
)
def test_a_message_that_is_no_text_is_refused(client: TestClient, message: dict[str, Any], sentence: str) -> None:
    assert refusal(client, "/v1/chat/completions", **{**TALK, "messages": [message]})[0].startswith(sentence)


def test_the_clients_exceptions_have_the_name_of_the_field(address: str) -> None:
    with OpenAI(base_url=f"{address}/v1", api_key="anything", max_retries=0) as ask:
        with pytest.raises(openai.BadRequestError) as found:
            ask.completions.create(model="writer", prompt="a", temperature=3)
        assert found.value.param == "temperature"
        with pytest.raises(openai.NotFoundError) as missing:
            ask.models.retrieve("somebody/writer")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")


def test_ids_of_another_tokenizer_are_refused_with_advice(client: TestClient) -> None:
    sentence, param = refusal(client, "/v1/embeddings", model="critic", input=[[15339, 1917]])
    assert (sentence.endswith("send texts, or ids of this vocabulary"), param) == (True, "input")


def test_a_name_may_have_a_slash(service: Service) -> None:
    renamed = Service({"org/writer": service.models["writer"]}, service.limits)
    client = TestClient(create_app(renamed, Access()), base_url="http://127.0.0.1")
    for name in ("org/writer", quote("org/writer", safe="")):
        assert client.get(f"/v1/models/{name}").status_code == 200
    assert client.get("/v1/models/").json()["error"]["message"].endswith("did you mean /v1/models?")
    assert 'route="/v1/models/{name}",status="200"} 2.0' in client.get("/metrics").text


def test_an_image_beside_a_text_is_not_ignored(client: TestClient) -> None:
    image = base64.b64encode(png()).decode()
    for text in ("we are", ["we are"]):
        sentence = "image: critic reads a text; leave out the image"
        assert refusal(client, "/classify", model="critic", text=text, image=image) == (sentence, "image")
    sentence = "text: eyes reads an image; leave out the text"
    for text in ("7", ["7"]):
        assert refusal(client, "/classify", model="eyes", text=text, image=image) == (sentence, "text")


def test_base64_may_have_lines(client: TestClient) -> None:
    content = png()
    lines, line = base64.encodebytes(content).decode(), base64.b64encode(content).decode()
    assert "\n" in lines
    assert post(client, "/classify", model="eyes", image=lines) == post(client, "/classify", model="eyes", image=line)


def test_settings_of_a_look_that_it_would_not_use_are_refused(client: TestClient) -> None:
    sentence, _ = refusal(client, "/look", model="translator", text="we are", target="we", generate=True)
    assert sentence == "target: it stands for what the model generates; leave out generate and max_tokens"
    sentence, _ = refusal(client, "/look", model="writer", text="we are", max_tokens=3)
    assert sentence == "max_tokens: writer only reads the text; add generate: true"


# --- bodies ---


def test_a_body_that_is_no_object_is_refused(client: TestClient) -> None:
    for body in (b"[1]", b'"prompt"'):
        answer = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        assert answer.json()["error"]["message"] == "the body: it must be a JSON object"
    sentence, param = refusal(client, "/v1/completions", **WRITE, stream_options=1)
    assert (sentence, param) == ("stream_options: it must be a JSON object", "stream_options")


def test_a_body_of_another_kind_is_told_what_is_read(client: TestClient) -> None:
    for kind, body in (("image/png", png()), ("application/x-www-form-urlencoded", b"model=eyes")):
        answer = client.post("/classify", content=body, headers={"content-type": kind})
        assert answer.status_code == 400
        assert f"(Content-Type: {kind}); send a JSON object" in answer.json()["error"]["message"]


def test_a_form_says_what_is_wrong_with_it(client: TestClient) -> None:
    two = [("image", ("a.png", png())), ("image", ("b.png", png()))]
    answer = client.post("/classify", data={"model": "eyes"}, files=two)
    assert answer.json()["error"]["message"].startswith("the form cannot be read: too many files")
    answer = client.post("/classify", data={"model": ["eyes", "critic"]}, files=two[:1])
    error = answer.json()["error"]
    assert (error["message"], error["param"]) == ("model: the form has this field twice; send it once", "model")


def test_a_compressed_body_is_refused_by_its_name(client: TestClient) -> None:
    body = json.dumps(WRITE).encode()
    answer = client.post("/v1/completions", content=gzip.compress(body), headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        415,
        "Content-Encoding: gzip is not supported; send the body without compression",
    )
    assert client.post("/v1/completions", content=body, headers={"content-encoding": "identity"}).status_code == 200


# --- addresses, methods and headers ---


def test_a_stream_passes_through_proxies_as_it_comes(client: TestClient) -> None:
    headers = client.post("/v1/completions", json={**WRITE, "stream": True}).headers
    assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-store")


def test_what_takes_too_long_is_not_asked_again(open_service: Open) -> None:
    with open_service("writer", seconds=0.000_001) as address, OpenAI(base_url=f"{address}/v1", api_key="x") as ask:
        with pytest.raises(openai.InternalServerError, match="this took longer than"):
            ask.completions.create(model="writer", prompt="a", max_tokens=400)
        assert metric(address, 'clearhead_requests_total{route="/v1/completions",status="504"}') == 1


def test_another_host_is_told_how_to_allow_it(service: Service) -> None:
    client = TestClient(create_app(service, Access()), base_url="http://host.docker.internal:8000")
    assert "or start it with --allow-host" in client.get("/v1/models").json()["error"]["message"]


def test_an_address_that_is_nearly_right_is_told_the_right_one(client: TestClient) -> None:
    meant = {
        "/chat/completions": "/v1/chat/completions",
        "/v1/completions/": "/v1/completions",
        "/v1//models": "/v1/models",
    }
    for path, right in meant.items():
        answer = client.post(path, json={})
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == f"there is nothing at this address; did you mean {right}?"


def test_head_answers_like_get_without_a_body(open_service: Open) -> None:
    with open_service("writer") as address, closing(HTTPConnection(*place(address), timeout=60)) as client:
        for path in ("/health", "/ready", "/v1/models"):
            sizes = []
            for method in ("HEAD", "GET"):
                client.request(method, path)
                answer = client.getresponse()
                assert (answer.status, bool(answer.read())) == (200, method == "GET")
                sizes.append(answer.headers["content-length"])
            assert sizes[0] == sizes[1]


def test_an_upgrade_is_answered_as_http_and_not_logged(open_service: Open, caplog: pytest.LogCaptureFixture) -> None:
    with open_service("writer") as address, closing(HTTPConnection(*place(address), timeout=60)) as client:
        for protocol in ("websocket", "h2c"):
            client.request("GET", "/health", headers={"Connection": "Upgrade", "Upgrade": protocol})
            answer = client.getresponse()
            assert (answer.status, json.loads(answer.read())["status"]) == (200, "ok")
    assert [record.getMessage() for record in caplog.records if "pgrade" in record.getMessage()] == []


def test_requests_follow_one_that_asks_for_an_upgrade(open_service: Open) -> None:
    """As Java's client sends them: a body, and the offer to go on with HTTP/2."""
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAA"}
    body = json.dumps({"model": "writer", "prompt": "abc", "max_tokens": 3, "temperature": 0})
    with open_service("writer") as address, closing(HTTPConnection(*place(address), timeout=60)) as client:
        texts = []
        for more in (headers, headers, {}):
            client.request("POST", "/v1/completions", body, {"Content-Type": "application/json", **more})
            texts.append(json.loads(client.getresponse().read())["choices"][0]["text"])
    assert len(set(texts)) == 1


def talk(address: str, *parts: bytes) -> bytes:
    """All that comes back; each part is sent when there is an answer to the one before."""
    received = b""
    with closing(socket.create_connection(place(address), timeout=60)) as client:
        for part in parts:
            client.sendall(part)
            received += client.recv(10_000)
        while more := client.recv(10_000):
            received += more
    return received


def test_what_is_no_http_is_answered_like_any_mistake(open_service: Open, caplog: pytest.LogCaptureFixture) -> None:
    late = b"POST /words HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\n"
    with open_service("writer") as address:
        for wrong in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", b"GET /health HTTP/1.1\r\n\r\n"):
            head, _, body = talk(address, wrong).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            assert json.loads(body)["error"]["code"] == "invalid_http"
        answer = talk(address, late, b"no size\r\n")  # of a chunk, when the answer has been sent
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert answer.count(b"HTTP/1.1") == 1
    assert [record for record in caplog.records if record.exc_info] == []


def test_the_scheme_of_a_token_has_no_case(service: Service) -> None:
    app = create_app(Service(service.models, Limits()), Access(token="a secret"))
    client = TestClient(app, base_url="http://127.0.0.1")
    for scheme, status in (("bearer", 200), ("BEARER", 200), ("Basic", 401)):
        assert client.get("/v1/models", headers={"authorization": f"{scheme} a secret"}).status_code == status
