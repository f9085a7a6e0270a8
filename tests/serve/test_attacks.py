"""What one client does to the others: nothing. Large and wrong bodies, long work, clients that leave or do not read."""

from __future__ import annotations

import http.client
import json
import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from pydantic import ValidationError
from starlette.testclient import TestClient

from clearhead.serve.chat import ChatRequest
from clearhead.serve.completions import CompletionRequest
from clearhead.serve.errors import RequestError
from clearhead.serve.inputs import RequestBody
from clearhead.serve.metrics import Metrics
from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits, check_items
from clearhead.serve.server import create_app
from clearhead.serve.tasks import TranslateRequest, WordsRequest
from clearhead.serve.worker import STEP_WORK, Job, Worker
from clearhead.tasks.base.predictor import GeneratingPredictor, Predictor
from clearhead.text import Tokenizer

from .conftest import Open
from .setting import sentences
from .test_clients import HEAD, eventually, metric, place, post

WAIT = 10.0


# --- bodies ---


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CompletionRequest, {"model": "writer", "prompt": [-1] * 1009}),
        (CompletionRequest, {"model": "writer", "prompt": [[3], *[[5, -1]] * 503]}),
        (CompletionRequest, {"model": "writer", "prompt": "a", "banned_tokens": ["x"] * 907}),
        (CompletionRequest, {"model": "writer", "prompt": "a", **{f"field{i}": 1 for i in range(1013)}}),
        (ChatRequest, {"model": "writer", "messages": [{"role": "nobody", "content": 1}] * 199}),
        (TranslateRequest, {"model": "translator", "text": [1] * 1021}),
        (WordsRequest, {"model": "vectors", "question": "analogy", "words": [1] * 1031}),
    ],
)
def test_a_thousand_mistakes_cost_as_much_as_one(kind: type[RequestBody], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as found:
        kind.model_validate(body)
    assert found.value.error_count() <= 3  # of a union one for each kind


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        ([5, 3, -1, -1], "prompt: item 2 is -1; it must be a text, texts, token ids from 0 on, or rows of token ids"),
        (["a", 7], "prompt: item 1 is 7; "),
        ([[2, 3], [5, True]], "prompt: item 1 of row 1 is true; "),
        ([[2], "x" * 99], 'prompt: item 1 is "xxxxxxxxxxxxxxxxxxxx"; '),
        ([{}], "prompt: item 0 is an object; "),
        (7, "prompt: it is neither a text nor a list; "),
    ],
)
def test_the_first_wrong_item_of_a_prompt_is_named(client: TestClient, prompt: Any, sentence: str) -> None:
    answer = client.post("/v1/completions", json={"model": "writer", "prompt": prompt})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(sentence)


def test_a_body_with_too_many_values_is_refused_before_it_is_read(service: Service) -> None:
    small = Service(service.models, Limits(items=5003))
    client = TestClient(create_app(small, Access()), base_url="http://127.0.0.1")
    answer = client.post("/v1/completions", json={"model": "writer", "prompt": [7] * 9001})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        413,
        "the request has more than 5,003 values; send less at a time",
    )
    text = ", [{" * 5000  # in a text these are characters
    answer = client.post("/translate", json={"model": "translator", "text": [text]})
    assert answer.json()["error"]["message"] == "text: a text has 20,000 characters; the limit is 2,000"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"[1, 2, 3]", 3),
        (b'{"a": [1, "x, y", "\\"[,"], "b": {}}', 6),
        (b'["\\\\", ",,,,"]', 2),
        (b'"' + b"," * 50, 0),  # a string without an end
        (b"", 0),
    ],
)
def test_values_are_counted_outside_strings(body: bytes, count: int) -> None:
    check_items(body, count, 100)
    if count:
        with pytest.raises(RequestError, match=f"more than {count - 1} values"):
            check_items(body, count - 1, 100)


@pytest.mark.parametrize("repeats", [0, 1, 999, 2000, 2001, 4000, 9001])
def test_a_string_with_many_escapes_is_one_string(repeats: int) -> None:
    body = json.dumps({"text": 'a,"[\\' * repeats, "b": [1]}).encode()
    check_items(body, 3, 3)
    for values, strings, sentence in ((2, 3, "more than 2 values"), (3, 2, "more than 2 strings")):
        with pytest.raises(RequestError, match=sentence):
            check_items(body, values, strings)
    check_items(body[:-9], 3, 3)  # cut off in the middle
    check_items(b'"' + b"\\" * 5001, 0, 1)  # nothing but the beginning of an escape at its end


def test_json_errors_say_what_and_where(client: TestClient) -> None:
    for body, sentence in (
        (b'{"model": ', "the body is not JSON: expecting value at character 11"),
        (b"{", "the body is not JSON: expecting property name enclosed in double quotes at character 2"),
        (b'{"model": "\xff"}', "the body is not JSON: it is not UTF-8"),
        (b"", "the body is not JSON: expecting value at character 1"),
    ):
        for route in ("/translate", "/v1/completions", "/classify"):
            answer = client.post(route, content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)


def test_a_stop_string_may_be_longer_than_sixteen_characters(client: TestClient) -> None:
    body = {"model": "writer", "prompt": "a", "max_tokens": 2, "stop": "the end of this conversation"}
    assert client.post("/v1/completions", json=body).status_code == 200
    many = client.post("/v1/completions", json={**body, "stop": ["x"] * 17})
    assert many.status_code == 400
    assert "at most 16 items" in many.json()["error"]["message"]


# --- long work ---


@pytest.mark.parametrize(("route", "field"), [("/v1/completions", "prompt"), ("/v1/embeddings", "input")])
def test_what_is_read_is_limited(runs: list[str], route: str, field: str) -> None:
    service = Service.load([run for run in runs if run.endswith("writer")], Limits(read=1009))
    client = TestClient(create_app(service, Access()), base_url="http://127.0.0.1")
    for prompts in ([[5] * 101] * 10, ["a" * 101] * 10):
        answer = client.post(route, json={"model": "writer", field: prompts})
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            413,
            "the request has 1,010 tokens to read, and the limit is 1,009: send fewer texts",
        )
    assert client.post(route, json={"model": "writer", field: [[5] * 100]}).status_code == 200
    service.close()


def test_work_is_limited_before_it_starts(service: Service) -> None:
    client = TestClient(create_app(service, Access()), base_url="http://127.0.0.1:8000")
    answer = client.post("/translate", json={"model": "translator", "text": ["we are " * 250] * 3, "beams": 16})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        413,
        "the translations may take 48,576 tokens × beams, and the limit is 32,768: "
        "send shorter or fewer texts, or ask for fewer beams",
    )
    assert service.models["translator"].worker.running == 0


def test_a_text_of_ten_thousand_letters_is_refused() -> None:
    service = Service.load(["en-es"])
    client = TestClient(create_app(service, Access()), base_url="http://127.0.0.1")
    for route, field in (("/translate", "text"), ("/predict", "input")):
        answer = client.post(route, json={"model": "en-es", field: "a" * 10_000})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_much_work")
        assert "80,048 tokens × beams, and the limit is 32,768" in answer.json()["error"]["message"]
    service.close()


def steps_of(count: int, log: list[str], go: threading.Event | None = None) -> Any:
    """The `run` of a job in so many steps; each waits until it may go on."""

    def run(jobs: list[Job]) -> Iterator[None]:
        name = jobs[0].payload
        try:
            for number in range(count):
                log.append(f"{name}{number}")
                assert go is None or go.wait(WAIT)
                yield
            for job in jobs:
                job.resolve(name)
        finally:
            log.append(f"{name} ends")

    return run


def test_a_batch_that_nobody_waits_for_is_dropped_between_two_steps() -> None:
    log: list[str] = []
    go = threading.Event()
    worker = Worker("slow", Limits(), Metrics())
    jobs = [Job("a", "a", steps_of(100_000, log, go)) for _ in range(2)]
    worker.submit(jobs)
    eventually(lambda: log == ["a0"])
    jobs[0].answer.cancel()
    other = Job("b", "b", steps_of(1, log))
    jobs[1].answer.cancel()
    worker.submit([other])
    go.set()
    assert other.answer.result(WAIT) == "b"
    worker.close(WAIT)
    assert log == ["a0", "a ends", "b0", "b ends"]


def test_a_new_request_does_not_wait_for_the_end_of_a_large_one() -> None:
    log: list[str] = []
    go = threading.Event()
    worker = Worker("slow", Limits(), Metrics())
    large = [Job(f"large {number}", "large", steps_of(5, log, go), cost=STEP_WORK) for number in range(7)]
    worker.submit(large)
    eventually(lambda: log)
    small = Job("small", "small", steps_of(1, log))
    worker.submit([small])
    go.set()
    for job in (small, *large):
        job.answer.result(WAIT)
    worker.close(WAIT)
    assert log.index("small0") <= 2
    assert sum(each == "large ends" for each in log) == 7


def test_costly_jobs_are_not_computed_in_one_batch() -> None:
    batches: list[int] = []
    go = threading.Event()

    def run(jobs: list[Job]) -> Iterator[None]:
        assert go.wait(WAIT)
        batches.append(len(jobs))
        for job in jobs:
            job.resolve(None)
        yield

    worker = Worker("slow", Limits(), Metrics())
    jobs = [Job("key", None, run, cost=STEP_WORK // 3) for _ in range(7)]
    worker.submit(jobs)
    go.set()
    for job in jobs:
        job.answer.result(WAIT)
    worker.close()
    assert batches == [3, 3, 1]


def test_a_wide_search_is_not_passed_by_for_ever() -> None:
    """Rows that came later wait until it has its rows, but other jobs do not."""
    worker = Worker("rows", Limits(rows=7), Metrics())
    log: list[str] = []
    worker._waiting = [Job("wide", "wide", steps_of(1, log), rows=5), Job("row", "row", steps_of(1, log), rows=1)]
    other = Job("other", "other", steps_of(1, log))
    assert worker._first(room=7) is worker._waiting[0]
    assert worker._first(room=4) is None
    worker._waiting.append(other)
    assert worker._first(room=4) is other
    worker._waiting = []
    worker.close(WAIT)


def test_closing_does_not_wait_for_a_step_that_does_not_end() -> None:
    log: list[str] = []
    go = threading.Event()
    worker = Worker("slow", Limits(), Metrics())
    worker.submit([Job("a", "a", steps_of(1, log, go))])
    eventually(lambda: log)
    worker.close(0.01)
    assert not worker.ready
    go.set()


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_a_translation_whose_client_left_is_not_computed_to_its_end(
    open_service: Open, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    monkeypatch.setattr(Tokenizer, "stop", property(lambda _: 3, lambda *_: None), raising=False)
    services: list[Service] = []
    load_service = Service.load
    monkeypatch.setattr(Service, "load", lambda *each: services.append(load_service(*each)) or services[-1])
    with open_service("translator", work=10**9, characters=10**6) as address:
        texts = ["we are eating bread and drinking water near the old house . " * 60] * 100
        body = json.dumps({"model": "translator", "text": texts, "beams": 1, "temperature": temperature}).encode()
        worker = services[0].models["translator"].worker
        with closing(socket.create_connection(place(address))) as connection:
            connection.sendall(HEAD.format(len(body)).encode() + body)
            eventually(lambda: worker.running)
        eventually(lambda: not worker.running and not worker.waiting)
        assert post(address, "/translate", {"model": "translator", "text": "we are"})[0] == 200


# --- clients that leave, or do not read ---


def test_a_client_that_does_not_read_is_disconnected(open_service: Open) -> None:
    with open_service("translator", patience=0.5, characters=200_000) as address:
        body = json.dumps({"model": "translator", "text": ["q" * 60_000] * 100}).encode()  # unknown: it stays as it is
        with closing(socket.socket()) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(place(address))
            deaf.sendall(HEAD.format(len(body)).encode() + body)
            waiting = select.poll()
            waiting.register(deaf, select.POLLERR | select.POLLHUP)  # without reading: the server has reset it
            assert waiting.poll(20_000)


def test_clients_that_leave_do_not_fill_the_log(open_service: Open, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), open_service("writer", context=100_000, tokens=10**6) as address:
        body = {"model": "writer", "prompt": "a", "max_tokens": 9000, "n": 16, "stream": True, "temperature": 1.5}
        content = json.dumps(body)
        for _ in range(3):
            with closing(socket.create_connection(place(address))) as connection:
                head = HEAD.format(len(content)).replace("/translate", "/v1/completions")
                connection.sendall((head + content).encode())
                assert connection.recv(4096)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: metric(address, 'clearhead_running_rows{model="writer"}') == 0)
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_request_that_outlasts_the_grace_period_gets_a_503_and_no_traceback(
    open_service: Open, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"model": "writer", "prompt": "a", "max_tokens": 90_000, "n": 10, "temperature": 0}
    body["frequency_penalty"] = -2  # the more often a token was written, the likelier it is: no text ends
    with open_service("writer", context=100_000, tokens=10**6, grace=0.1) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        eventually(lambda: metric(address, 'clearhead_running_rows{model="writer"}') > 0)
    with closing(connection):
        answer = connection.getresponse()
        assert (answer.status, json.load(answer)["error"]["code"]) == (503, "stopping")
    assert [record for record in caplog.records if record.exc_info] == []


def test_health_is_answered_while_a_large_body_is_read(address: str) -> None:
    """Not a matter of speed: while it was read in the event loop, no other request was answered at all."""
    body = json.dumps({"model": "writer", "prompt": [7] * 250_000})
    answers: list[int] = []
    reading = threading.Thread(target=lambda: answers.append(post(address, "/v1/completions", json.loads(body))[0]))
    reading.start()
    while not answers:
        assert metric(address, "none") == 0.0
        time.sleep(0.01)
    assert answers == [400]  # longer than the context


def test_many_requests_of_one_client_do_not_delay_another(address: str) -> None:
    texts = sentences(60, seed=5)
    found: list[int] = []
    crowd = [
        threading.Thread(
            target=lambda: found.append(post(address, "/translate", {"model": "translator", "text": texts})[0])
        )
        for _ in range(4)
    ]
    for each in crowd:
        each.start()
    assert post(address, "/translate", {"model": "translator", "text": "we are"})[0] == 200
    for each in crowd:
        each.join()
    assert found == [200] * 4


def test_a_look_past_its_time_does_not_keep_the_model(open_service: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends between two layers; on the way it has no step at which the thread could leave it."""

    def look_for_ever(self: Any, *_: Any, **__: Any) -> None:
        x = torch.zeros(3, 3)
        while True:
            x = torch.nn.functional.relu(x)

    monkeypatch.setattr(Predictor, "look", look_for_ever)
    monkeypatch.setattr(GeneratingPredictor, "look", look_for_ever)
    with open_service("translator", seconds=0.3) as address:
        status, found = post(address, "/look", {"model": "translator", "text": "we are"})
        assert (status, found["error"]["code"]) == (504, "too_slow")
        eventually(lambda: metric(address, 'clearhead_running_rows{model="translator"}') == 0)
        eventually(lambda: post(address, "/translate", {"model": "translator", "text": "we are"})[0] == 200)
