"""Running a service: keys, TLS, limits per client, request ids, logs, readiness, and its end."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from clearhead import load
from clearhead.errors import ConfigError
from clearhead.serve.errors import RequestError
from clearhead.serve.logs import JsonFormatter
from clearhead.serve.metrics import Metrics
from clearhead.serve.registry import ServedModel, Service
from clearhead.serve.security import Access, Clients, Limits, read_keys
from clearhead.serve.server import Address, create_app, make_server

from .test_clients import HEAD, eventually, place

BODY = {"model": "vectors", "question": "neighbours", "words": ["bread"]}


def client_of(service: Service, access: Access | None = None, **limits: Any) -> TestClient:
    app = create_app(Service(service.models, Limits(**limits), service.metrics), access or Access())
    return TestClient(app, base_url="http://127.0.0.1")


# --- keys ---


def test_keys_are_read_with_the_names_of_their_clients(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# who\nalice k-1\n\n  k-2  # nobody in particular\nbob  k-3\n", encoding="utf-8")
    assert read_keys(file) == {"k-1": "alice", "k-2": "key 4", "k-3": "bob"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has no key; write one in each line"),
        (b"alice one two\n", "line 1: a line has a key, or a name and a key"),
        ("a schlüssel\n".encode(), "line 1: a line has a key, or a name and a key, in ASCII"),
        (b"a k\nb k\n", "line 2: this key is there twice; give every client its own"),
        (b"\xff\xfe", "it is not UTF-8"),
    ],
)
def test_a_damaged_file_of_keys_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        read_keys(file)
    with pytest.raises(ConfigError, match=r"cannot read the keys in .*nothing: No such file or directory"):
        read_keys(tmp_path / "nothing")


def test_every_key_opens_the_service(service: Service) -> None:
    client = client_of(service, Access("the token", keys={"k-1": "alice", "k-2": "bob"}))
    for token, status in (("k-1", 200), ("k-2", 200), ("the token", 200), ("k-3", 401), ("alice", 401), ("", 401)):
        assert client.post("/words", json=BODY, headers={"authorization": f"Bearer {token}"}).status_code == status
    assert client.post("/words", json=BODY).status_code == 401
    assert Address("0.0.0.0", keys={"k-1": "alice"}).access.keys == {"k-1": "alice"}


# --- limits of a client ---


def test_a_client_has_so_many_requests_at_a_time() -> None:
    clients = Clients(Limits(client_requests=2))
    with clients.admit("alice"), clients.admit("alice"):
        with (
            pytest.raises(RequestError, match="this client has 2 requests in progress") as found,
            clients.admit("alice"),
        ):
            pass
        assert (found.value.status, found.value.headers) == (429, {"Retry-After": "1"})
        with clients.admit("bob"):
            pass
    with clients.admit("alice"):
        pass


def test_a_client_has_so_many_requests_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("clearhead.serve.security.time", SimpleNamespace(monotonic=lambda: now))  # of no other module
    clients = Clients(Limits(client_rate=3, connections=2))

    def ask(name: str) -> str:
        try:
            with clients.admit(name):
                return "answered"
        except RequestError as refused:
            return refused.headers["Retry-After"]

    assert [ask("alice") for _ in range(5)] == ["answered"] * 3 + ["20"] * 2
    assert ask("bob") == "answered"
    now += 21
    assert [ask("alice") for _ in range(2)] == ["answered", "19"]
    assert [ask(name) for name in ("carol", "dave", "erin")] == ["answered"] * 3
    assert len(clients._left) == 2


def test_the_limits_hold_for_a_key_and_not_for_health(service: Service) -> None:
    client = client_of(service, Access(keys={"k-1": "alice", "k-2": "bob"}), client_rate=1)
    alice, bob = ({"authorization": f"Bearer {key}"} for key in ("k-1", "k-2"))
    assert client.post("/words", json=BODY, headers=alice).status_code == 200
    refused = client.post("/words", json=BODY, headers=alice)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
    assert client.post("/words", json=BODY, headers=bob).status_code == 200
    assert {client.get("/health").status_code for _ in range(5)} == {200}


# --- ids, logs, readiness ---


def test_every_answer_has_an_id(client: TestClient) -> None:
    sent = client.post("/words", json=BODY, headers={"x-request-id": "abc-7.X_y"})
    assert (sent.status_code, sent.headers["x-request-id"]) == (200, "abc-7.X_y")
    ids = {client.get(path).headers["x-request-id"] for path in ("/health", "/nowhere", "/v1/models")}
    ids |= {client.get("/health", headers={"x-request-id": odd}).headers["x-request-id"] for odd in ("a b", "x" * 65)}
    assert len(ids) == 5
    assert all(len(each) == 32 for each in ids)


def test_requests_and_failures_are_logged_with_their_id(
    client: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ServedModel, "call", fail)
    calm = TestClient(client.app, base_url=str(client.base_url), raise_server_exceptions=False)
    with caplog.at_level(logging.INFO, "clearhead.serve"):
        answer = calm.post("/words", json=BODY, headers={"x-request-id": "seven"})
    assert answer.status_code == 500
    assert "request seven failed" in caplog.text
    logged = next(record for record in caplog.records if record.name == "clearhead.serve.access")
    line = json.loads(JsonFormatter().format(logged))
    assert line.pop("time").endswith("Z")
    assert line.pop("seconds") >= 0
    assert line == {
        "level": "info",
        "logger": "clearhead.serve.access",
        "message": "POST /words 500",
        "request": "seven",
        "client": "testclient",
        "method": "POST",
        "path": "/words",
        "status": 500,
    }


def test_an_exception_is_one_line_of_json() -> None:
    try:
        raise ZeroDivisionError("by 0")
    except ZeroDivisionError:
        record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "no %s", ("way",), sys.exc_info())
    [line] = JsonFormatter().format(record).splitlines()
    found = json.loads(line)
    assert (found["message"], found["level"]) == ("no way", "error")
    assert "ZeroDivisionError: by 0" in found["exception"]


def test_a_service_is_ready_until_a_model_stops(runs: list[str]) -> None:
    service = Service.load([run for run in runs if run.endswith("vectors")])
    client = client_of(service, Access("needs no token"))
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "models": ["vectors"]})
    service.close()
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert client.get("/health").status_code == 200


def test_the_first_token_and_the_steps_are_measured(client: TestClient) -> None:
    def numbers() -> dict[str, float]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        names = ("clearhead_first_token_seconds_count", "clearhead_step_rows_count", "clearhead_step_rows_sum")
        samples = [each for family in families for each in family.samples if each.name in names]
        return {each.name: each.value for each in samples if each.labels["model"] == "writer"}

    client.post("/v1/completions", json={"model": "writer", "prompt": "a", "max_tokens": 1})
    before = numbers()
    body = {
        "model": "writer",
        "prompt": ["ab", "cd"],
        "max_tokens": 5,
        "temperature": 0,
        "n": 1,
        "prefix_tokens": [9] * 4,
    }
    assert client.post("/v1/completions", json=body).status_code == 200
    after = numbers()
    assert after["clearhead_first_token_seconds_count"] - before["clearhead_first_token_seconds_count"] == 2
    steps = after["clearhead_step_rows_count"] - before["clearhead_step_rows_count"]
    assert 4 <= steps <= 7
    assert after["clearhead_step_rows_sum"] - before["clearhead_step_rows_sum"] > steps  # both rows in one step
    assert 'clearhead_running_rows{model="writer"} 0.0' in client.get("/metrics").text
    assert Metrics().text([]).decode().count("# TYPE clearhead_first_token_seconds histogram") == 1


# --- TLS ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_a_service_with_a_certificate_speaks_https(runs: list[str], certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    address = Address(port=0, certificate=cert, private_key=key)
    service = Service.load([run for run in runs if run.endswith("vectors")])
    with address.listen() as listening:
        server = make_server(create_app(service, address.access), service.limits, address)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            eventually(lambda: server.started)
            url, context = address.url(listening), ssl.create_default_context(cafile=str(cert))
            assert url.startswith("https://127.0.0.1:")
            with closing(http.client.HTTPSConnection(*place(url), context=context, timeout=20)) as connection:
                connection.request("POST", "/words", json.dumps(BODY), {"content-type": "application/json"})
                assert connection.getresponse().status == 200
        finally:
            server.should_exit = True
            thread.join()


def test_tls_needs_both_files_and_ones_that_fit(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    with pytest.raises(ConfigError, match="TLS needs both files: give --tls-cert and --tls-key"):
        Address(certificate=cert)
    with pytest.raises(ConfigError, match=r"nothing\.pem for TLS: No such file or directory"):
        Address(certificate=cert, private_key=tmp_path / "nothing.pem")
    with pytest.raises(ConfigError, match=r"cannot use .*key.pem and .*cert.pem for TLS: "):
        Address(certificate=key, private_key=cert)


# --- the end ---


@contextmanager
def started(clearhead: Path, run: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [clearhead, "serve", run, "--port", "0", "--json", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        text += line
    try:
        yield process, json.loads(text)["address"]
    finally:
        process.kill()
        process.communicate()


def test_the_end_has_a_deadline_and_a_second_signal_is_obeyed_at_once(runs: list[str], commands_folder: Path) -> None:
    """With a client that does not read a stream without end."""
    clearhead = commands_folder / "clearhead"
    writer = next(run for run in runs if run.endswith("writer"))
    settings = {"max_tokens": 2000, "n": 4, "logprobs": 20, "banned_tokens": [load(writer).tokenizer.stop]}
    body = json.dumps({"model": "writer", "prompt": "a", "stream": True, **settings})
    asked = (HEAD.format(len(body)).replace("/translate", "/v1/completions") + body).encode()

    def deaf(address: str) -> socket.socket:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(place(address))
        connection.sendall(asked)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        return connection

    with started(clearhead, writer, "--grace", "0.5", "--log-json") as (process, address), closing(deaf(address)):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        logged = [json.loads(line) for line in process.stderr.read().splitlines()]
        assert "POST /v1/completions 200" in [line["message"] for line in logged]
    with started(clearhead, writer, "--grace", "600") as (process, address), closing(deaf(address)):
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (128 + signal.SIGTERM, -signal.SIGTERM)  # exits, or is ended by the signal itself
