"""`clearhead serve` as a user starts and stops it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.main import _run


@contextmanager
def served(clearhead: Path, *words: str, verb: str = "serve") -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [clearhead, verb, *words, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    announced = ""
    while not announced.endswith("}\n"):
        line = process.stdout.readline()
        assert line, "it ended before it announced its address"
        announced += line
    yield process, json.loads(announced)
    process.kill()
    process.communicate()


def read(address: str, route: str) -> str:
    with urllib.request.urlopen(address + route, timeout=60) as answer:
        return str(answer.read(), "utf-8")


def ask(address: str, route: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(address + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_it_serves_several_models_and_finishes_requests_in_progress(commands_folder: Path) -> None:
    with served(commands_folder / "clearhead", "vectors=words", "shakespeare") as (process, announced):
        assert announced["models"] == ["vectors", "shakespeare"]
        found = ask(announced["address"], "/words", {"model": "vectors", "question": "neighbours", "words": ["king"]})
        assert len(found["found"]) == 10
        long = {"model": "shakespeare", "prompt": "ROMEO:", "max_tokens": 90, "seed": 1}
        begun = 'clearhead_batch_rows_count{model="shakespeare"} 1.0\n'
        answers: list[Any] = []
        client = threading.Thread(target=lambda: answers.append(ask(announced["address"], "/v1/completions", long)))
        client.start()
        while begun not in read(announced["address"], "/metrics"):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        client.join()
        assert answers[0]["usage"]["completion_tokens"] == 90
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        with pytest.raises(OSError, match="refused"):
            ask_once(announced["address"])


@pytest.mark.parametrize(("verb", "more"), [("serve", ()), ("studio", ("--no-browser",))])
def test_ctrl_c_stops_it_with_exit_code_0(commands_folder: Path, verb: str, more: tuple[str, ...]) -> None:
    with served(commands_folder / "clearhead", "words", *more, verb=verb) as (process, announced):
        urllib.request.urlopen(announced["address"].removesuffix("/studio/") + "/health", timeout=60).close()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def ask_once(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    socket.create_connection((host, int(port)))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["words", "--host", "0.0.0.0"],
            "--host 0.0.0.0 opens the service to other machines: give it a --token",
        ),
        (
            ["words", "--token", ""],
            "the token is empty or has characters that an HTTP header cannot carry; choose another",
        ),
        (["words", "--token", "schlüssel"], "the token is empty or has characters that an HTTP header cannot carry"),
        (["words", "words", "--port", "0"], "two models are called words; give one of them another name: NAME=words"),
        (["wrds", "--port", "0"], "no such run directory or model: wrds; did you mean words?"),
        (["words", "--host", "203.0.113.7", "--token", "x"], "cannot listen on 203.0.113.7, port 8000: "),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["serve", *words], debug=False) == 2
    assert capsys.readouterr().err.startswith(f"clearhead: {sentence}")


def test_a_port_that_is_taken_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert _run(["serve", "words", "--port", str(port)], debug=False) == 2
    assert capsys.readouterr().err == (
        f"clearhead: cannot listen on 127.0.0.1, port {port}: Address already in use; choose another\n"
    )


def test_the_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.serve import server

    addresses: list[server.Address] = []
    monkeypatch.setattr(server, "run", lambda _service, address, _listening: addresses.append(address))
    monkeypatch.setenv("CLEARHEAD_TOKEN", "open sesame")
    assert (
        _run(["serve", "words", "--host", "0.0.0.0", "--port", "0", "--allow-host", "Model.example"], debug=False) == 0
    )
    assert addresses[0].token == "open sesame"
    assert addresses[0].access.hosts >= {"localhost", "model.example"}


def test_a_missing_package_is_named() -> None:
    code = "import sys; sys.modules['fastapi'] = None; from clearhead.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", code, "serve", "words"]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "clearhead: serving needs fastapi: pip install 'clearhead[studio]'\n"


def test_help_needs_neither_torch_nor_fastapi() -> None:
    code = "import sys, clearhead.cli.main; sys.exit(any(m in sys.modules for m in ('torch', 'fastapi', 'uvicorn')))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0


def test_an_error_about_quantising_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["serve", "words", "--quantise", "q9", "--port", "0"], debug=False) == 2
    assert "unknown --quantise q9; choose from: q4, q8" in capsys.readouterr().err
    assert _run(["serve", "words", "--cache-type", "int8", "--port", "0"], debug=False) == 2
    error = capsys.readouterr().err
    assert "--cache-type int8 is for quantised language models; add --quantise q8 or q4" in error
    assert _run(["generate", "shakespeare", "To", "--cache-type", "int8"], debug=False) == 2
    error = capsys.readouterr().err
    assert error == "clearhead: --cache-type=int8 is for quantised language models; add --quantise=q8 or q4\n"
