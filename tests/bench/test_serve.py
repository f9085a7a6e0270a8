"""The load test detects wrong responses, errors and slow clients."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.serve.conftest import opened
from tests.serve.setting import CHARACTERS, make

from clearhead.bench import serve
from clearhead.bench.serve import (
    ONE_CLIENT,
    LoadTest,
    Responses,
    Streams,
    figures,
    first_and_last,
    measure,
    memory,
    quantile,
    real_sentences,
    run_clients,
    stream_figures,
    stream_texts,
)
from clearhead.errors import ConfigError
from clearhead.serve.security import Limits

EXPECTED = {"one": frozenset({"uno"}), "two": frozenset({"dos", "Dos"}), "three": frozenset({"tres"})}


class Service(BaseHTTPRequestHandler):
    """Knows two words, and fails at the third."""

    protocol_version = "HTTP/1.1"
    says = {"one": (200, "uno"), "two": (200, "tres"), "three": (503, "")}

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, said = self.says[asked["text"]]
        self._answer(status, json.dumps({"model": asked["model"], "translation": said}))

    def do_GET(self) -> None:
        self._answer(200, "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 12345\n")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_answer_is_checked(address: str) -> None:
    found, seconds = run_clients(address, "en-es", EXPECTED, clients=3, seconds=0.2)
    assert len(found.times) >= 3  # each client asks at least once, and begins with another sentence
    assert seconds >= 0.2
    assert set(found.wrong) == {("two", "tres")}
    assert all(error.startswith("503") for error in found.errors)
    assert found.errors


def test_a_refused_connection_is_an_error() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]  # free again after this block
    found, _ = run_clients(f"http://127.0.0.1:{port}", "en-es", EXPECTED, clients=1, seconds=0.05)
    assert found.errors[0].startswith("ConnectionRefusedError")
    assert not found.times


def test_times_and_memory_are_measured(address: str) -> None:
    found = measure(address, "en-es", EXPECTED, clients=2, seconds=0.5)
    assert found.memory == (12345, 12345)
    assert memory(address) == 12345
    assert found.alone_seconds >= ONE_CLIENT * 0.5
    assert found.together_seconds >= (1 - ONE_CLIENT) * 0.5


def test_figures_show_missed_bounds() -> None:
    alone, together = Responses(times=[0.1] * 10), Responses([0.2] * 99 + [2.0], [("two", "tres")], ["503: busy"])
    found = {each.what: each for each in figures(LoadTest(alone, 1.0, together, 5.0, 7, (100e6, 107e6)))}
    assert (found["7 clients: errors"].value, found["7 clients: errors"].holds) == (1, False)
    assert (found["7 clients: wrong answers"].value, found["7 clients: wrong answers"].holds) == (1, False)
    assert (found["7 clients / one client"].value, found["7 clients / one client"].holds) == (2.0, False)
    growth = found["memory of the service: growth"]
    assert (growth.value, growth.holds) == (pytest.approx(7), False)
    assert found["7 clients: half are answered within"].value == pytest.approx(200)


def test_a_quantile_is_in_milliseconds() -> None:
    assert quantile([number / 1000 for number in range(101)], 99) == pytest.approx(99)


def test_sentences_are_real_and_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.data.hub.origin", lambda _: None)
    found = real_sentences(17)
    assert len(set(found)) == 17


def test_invalid_seconds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_BENCH_SECONDS", "soon")
    with pytest.raises(ConfigError, match="CLEARHEAD_BENCH_SECONDS=soon is not a number of seconds"):
        next(serve.run(peers=False))


def test_translations_and_streams_are_asked_of_real_services(
    commands_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    monkeypatch.setattr("clearhead.data.hub.origin", lambda _: None)
    monkeypatch.setenv("CLEARHEAD_BENCH_SECONDS", "0.5")
    for name, value in {"SENTENCES": 3, "CLIENTS": 2, "STREAMED": (5,), "STREAMS": {1: 1.0, 2: 0.1}}.items():
        monkeypatch.setattr(serve, name, value)
    found = {each.what: each.value for each in serve.run(peers=False)}
    assert (found["2 clients: errors"], found["2 clients: wrong answers"]) == (0, 0)
    assert found["2 clients: half are answered within"] > 0
    assert found["1 stream of 5 tokens: tokens a second"] > 0
    assert found["2 streams of 5 tokens / one stream"] > 0
    assert found["2 streams of 5 tokens in float16 / one stream"] > 0


def test_a_service_that_does_not_start_is_a_sentence(commands_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    with pytest.raises(ConfigError, match="the service did not start; its message is above"), serve.service("no-model"):
        pass


def test_memory_is_compared_by_medians_of_its_samples() -> None:
    up_and_down = [10.0, 30.0, 10.0, 12.0, 11.0, 90.0, 11.0, 12.0, 11.0, 40.0, 11.0, 11.0, 10.0, 11.0, 13.0]
    assert first_and_last(up_and_down) == (10.0, 11.0)
    assert first_and_last([7.0]) == (7.0, 7.0)


# --- streams ---


def test_streams_are_measured(tmp_path: Path) -> None:
    make(tmp_path / "writer", "lm", "char", CHARACTERS)
    with opened([str(tmp_path / "writer")], Limits()) as address:
        found = {count: stream_texts(address, "writer", count, 5, 0.01) for count in (1, 8)}
    assert [len(each.firsts) for each in found.values()] >= [1, 8]
    assert all(each.tokens == 5 * len(each.firsts) for each in found.values())


def test_stream_figures_show_missed_bounds() -> None:
    streams = {
        1: Streams(100, [0.1] * 2, 1.0),
        8: Streams(250, [0.1] * 9 + [0.9], 1.0),
        32: Streams(600, [1.0] * 9, 1.0),
    }
    found = {each.what: each for each in stream_figures(streams, "of 64 tokens")}
    assert found["1 stream of 64 tokens: tokens a second"].value == 100
    assert [found[f"{n} streams of 64 tokens / one stream"].holds for n in (8, 32)] == [False, True]
    assert found["8 streams of 64 tokens: 99 of 100 begin within"].holds is False
    assert found["32 streams of 64 tokens: 99 of 100 begin within"].holds is None
