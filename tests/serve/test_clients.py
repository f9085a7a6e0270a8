"""Clients on a port: many at once, slow ones, and those that go away."""

from __future__ import annotations

import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from clearhead import load
from clearhead.serve.registry import Service
from clearhead.text import Tokenizer

from .conftest import Open
from .setting import sentences

HEAD = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def place(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    return str(parts.hostname), int(parts.port or 0)


def post(address: str, route: str, body: dict[str, Any]) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection(*place(address), timeout=120)) as connection:
        connection.request("POST", route, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def metric(address: str, line: str) -> float:
    with closing(http.client.HTTPConnection(*place(address), timeout=120)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return next((float(each.rpartition(" ")[2]) for each in text.splitlines() if each.startswith(line + " ")), 0.0)


def eventually(true: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text ends by itself."""
    monkeypatch.setattr(Tokenizer, "stop", property(lambda _: -1, lambda *_: None), raising=False)


def test_no_answer_goes_to_another_client(address: str, runs: list[str]) -> None:
    translator, writer = (load(next(run for run in runs if run.endswith(name))) for name in ("translator", "writer"))
    texts, prompts = sentences(48, seed=2), [f"{text[:11]}:" for text in sentences(16, seed=3)]
    settings: dict[str, Any] = {"max_tokens": 19, "temperature": 0.5, "seed": 11}

    def translate(text: str) -> tuple[str, str]:
        status, found = post(address, "/translate", {"model": "translator", "text": text})
        assert status == 200
        return found["translation"], translator.translate(text)

    def write(prompt: str) -> tuple[str, str]:
        status, found = post(
            address, "/v1/completions", {"model": "writer", "prompt": prompt, "echo": True, **settings}
        )
        assert status == 200
        return found["choices"][0]["text"], writer.generate(prompt, **settings)

    def batches_and_rows() -> tuple[float, float]:
        count, rows = (f'clearhead_batch_rows_{each}{{model="translator"}}' for each in ("count", "sum"))
        return metric(address, count), metric(address, rows)

    before = batches_and_rows()
    with ThreadPoolExecutor(16) as clients:
        asked = [each for pair in zip(texts[::3], texts[1::3], texts[2::3], prompts, strict=True) for each in pair]
        found = list(clients.map(lambda text: write(text) if text.endswith(":") else translate(text), asked))
    assert len({wanted for _, wanted in found}) > 40
    for said, wanted in found:
        assert wanted.startswith(said) if said.startswith(tuple(prompts)) else said == wanted  # a stop ends a text
    batches, rows = (after - earlier for after, earlier in zip(batches_and_rows(), before, strict=True))
    assert rows == 48
    assert batches < 0.9 * rows


def test_a_full_queue_answers_429(open_service: Open) -> None:
    with open_service("translator", queue=5) as address:
        status, found = post(address, "/translate", {"model": "translator", "text": ["a"] * 6})
        assert (status, found["error"]["code"], found["error"]["type"]) == (429, "queue_full", "rate_limit_error")
        assert post(address, "/translate", {"model": "translator", "text": ["a"] * 5})[0] == 200


@pytest.mark.usefixtures("endless")
def test_what_takes_too_long_is_given_up(open_service: Open) -> None:
    with open_service("writer", seconds=0.05) as address:
        asked = {"model": "writer", "prompt": "a", "max_tokens": 2000, "temperature": 0}
        status, found = post(address, "/v1/completions", asked)
        assert (status, found["error"]["message"]) == (
            504,
            "this took longer than 0.05 seconds; ask for less at a time",
        )
        eventually(lambda: metric(address, 'clearhead_queue_rows{model="writer"}') == 0)


@pytest.mark.usefixtures("endless")
def test_a_stream_that_takes_too_long_ends_with_the_reason(open_service: Open) -> None:
    with (
        open_service("writer", seconds=4.0, context=100_000, tokens=100_000) as address,
        closing(http.client.HTTPConnection(*place(address), timeout=120)) as connection,
    ):
        body = {"model": "writer", "prompt": "a", "max_tokens": 90_000, "temperature": 0, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        *events, last = answer.read().decode().strip().split("\n\n")
    assert len(events) > 1
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "too_slow"


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_place(
    open_service: Open, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    services: list[Service] = []
    load_service = Service.load
    monkeypatch.setattr(Service, "load", lambda *each: services.append(load_service(*each)) or services[-1])
    with open_service("writer", rows=1, context=100_000, tokens=100_000) as address:
        body = json.dumps({"model": "writer", "prompt": "a", "max_tokens": 90_000, "temperature": 0, "stream": stream})
        worker = services[0].models["writer"].worker
        with closing(socket.create_connection(place(address))) as connection:
            connection.sendall(HEAD.format(len(body)).replace("/translate", "/v1/completions").encode() + body.encode())
            eventually(lambda: worker.running)
            received = b"" if stream else b"data: "
            while b"data: " not in received:
                received += connection.recv(4096)
                assert received
        eventually(lambda: not worker.running)
        status, found = post(address, "/v1/completions", {"model": "writer", "prompt": "a", "max_tokens": 3})
        assert (status, found["usage"]["completion_tokens"]) == (200, 3)


def test_a_client_that_sends_slowly_is_not_waited_for(open_service: Open) -> None:
    head = HEAD.format(100).encode()
    with open_service("translator", patience=1.5) as address, ThreadPoolExecutor(4) as clients:

        def first_answer(sent: bytes) -> bytes:
            with closing(socket.create_connection(place(address), timeout=120)) as client:
                client.sendall(sent)
                return client.recv(1000)

        *silent, slow = clients.map(first_answer, (b"", b"POST /trans", head[:-2], head + b'{"model": '))
        assert silent == [b"", b"", b""]  # closed without an answer
        assert b" 408 " in slow


def test_a_client_that_does_not_read_is_not_waited_for(open_service: Open) -> None:
    with open_service("translator", patience=2.0, characters=200_000) as address:
        body = json.dumps({"model": "translator", "text": ["q" * 60_000] * 100}).encode()  # unknown: it stays as it is
        with closing(socket.socket()) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(place(address))
            deaf.sendall(HEAD.format(len(body)).encode() + body)
            line = 'clearhead_requests_total{route="/translate",status="200"}'
            eventually(lambda: metric(address, line) == 1)
        assert post(address, "/translate", {"model": "translator", "text": "a"})[0] == 200


def test_many_silent_connections_make_room_for_those_who_ask(open_service: Open) -> None:
    with open_service("translator", connections=31) as address:
        crowd = [socket.create_connection(place(address)) for _ in range(200)]
        assert post(address, "/translate", {"model": "translator", "text": "we are"})[0] == 200
        for each in crowd:
            each.close()


@pytest.mark.slow
def test_ten_thousand_connections(open_service: Open) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip(f"the system lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with open_service("translator") as address:
        crowd = [socket.create_connection(place(address), timeout=120) for _ in range(10_000)]
        begin = time.monotonic()
        assert post(address, "/translate", {"model": "translator", "text": "we are"})[0] == 200
        assert time.monotonic() - begin < 10
        for each in crowd:
            each.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_loop_stays_free_while_a_model_computes(address: str) -> None:
    long = {"model": "writer", "prompt": "a", "max_tokens": 200, "n": 5, "temperature": 0}
    answered = 0
    with ThreadPoolExecutor(1) as client:
        working = client.submit(post, address, "/v1/completions", long)
        while not working.done():
            metric(address, "none")
            answered += 1
        assert working.result()[0] == 200
    assert answered > 3  # a loop that waits for the model would answer one of them at most
