"""Servers of one model take turns; what they stream is counted and compared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.serve.conftest import opened
from tests.serve.setting import CHARACTERS, make

from clearhead.bench import servers
from clearhead.bench.servers import LLAMA, OURS, TRANSFORMERS, Turn, figures, started, stream_texts
from clearhead.errors import ConfigError
from clearhead.serve.security import Limits

ECHO = """
import json, sys, http.server
class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["model"] == sys.argv[1]
        self.send_response(200)
        self.end_headers()
        for event in ({"choices": [{"text": "one"}]}, {"choices": [], "usage": {"completion_tokens": 5}}):
            self.wfile.write(f"data: {json.dumps(event)}\\n\\n".encode())
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
print("a line that is no address")
print(json.dumps({"address": f"http://127.0.0.1:{server.server_port}"}), flush=True)
server.serve_forever()
"""


def test_texts_are_different_and_their_tokens_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "TOKENS", 7)
    make(tmp_path / "writer", "lm", "char", CHARACTERS)
    with opened([str(tmp_path / "writer")], Limits()) as address:
        found = stream_texts(address, "writer", clients=3)
    assert found.tokens == 7 * 3 * servers.TEXTS
    assert len(found.firsts) == 3 * servers.TEXTS
    assert min(found.firsts) > 0
    assert found.rate > 0


def test_a_server_that_fails_is_a_sentence(tmp_path: Path) -> None:
    make(tmp_path / "writer", "lm", "char", CHARACTERS)
    with (
        opened([str(tmp_path / "writer")], Limits()) as address,
        pytest.raises(ConfigError, match="reader: a stream did not end; the server's message is above"),
    ):
        servers.stream_text(address, "reader", 0)
    with pytest.raises(ConfigError, match="the service did not start; its message is above"), started(["-c", ""]):
        pass


def test_figures_compare_turns_that_followed_each_other() -> None:
    ours = [Turn(100, 1.0, [0.1]), Turn(50, 1.0, [0.3]), Turn(80, 1.0, [0.2])]
    theirs = [Turn(100, 1.0, [0.5]), Turn(25, 1.0, [0.5]), Turn(64, 1.0, [0.5])]
    found = {each.what: each for each in figures({OURS: ours, LLAMA: theirs, TRANSFORMERS: theirs}, 8)}
    assert found["GGUF, 8 streams of 64 tokens: clearhead"].value == 80
    assert found["GGUF, 8 streams of 64 tokens: clearhead, half begin within"].value == pytest.approx(200)
    times = found["GGUF, 8 streams of 64 tokens: times llama.cpp"]
    assert (times.value, times.limit, times.holds) == (1.25, 1.3, False)
    assert found["GGUF, 8 streams of 64 tokens: times transformers"].holds is True


def test_every_server_is_started_and_asked(
    gguf_file: Path, tmp_path: Path, commands_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARHEAD_GGUF", str(gguf_file))
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    changed = {"LLAMA_CODE": ECHO, "TRANSFORMERS_CODE": ECHO, "ROUNDS": 2, "TEXTS": 1, "CLIENTS": (1, 3), "TOKENS": 5}
    for name, value in changed.items():
        monkeypatch.setattr(servers, name, value)
    found = {each.what: each for each in servers.run()}
    names = [*(OURS, LLAMA, TRANSFORMERS), f"times {LLAMA}", f"times {TRANSFORMERS}"]
    assert all(found[f"GGUF, {clients} streams of 5 tokens: {name}"].value > 0 for clients in (1, 3) for name in names)


@pytest.mark.slow
def test_the_real_servers_stream_the_same_weights(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("xllamacpp", "transformers", "openai"):
        pytest.importorskip(package)
    monkeypatch.setenv("CLEARHEAD_GGUF", str(gguf_file))
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    for name, value in {"ROUNDS": 1, "TEXTS": 1, "CLIENTS": (2,), "TOKENS": 5}.items():
        monkeypatch.setattr(servers, name, value)
    found = {each.what: each for each in servers.run()}
    assert all(found[f"GGUF, 2 streams of 5 tokens: {name}"].value > 0 for name in (OURS, LLAMA, TRANSFORMERS))
