"""The same settings and seed give the same text in Python, over HTTP, on the command line and in the Studio."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient
from tests.generation_cases import CASES, Case

from clearhead import Predictor, load
from clearhead.cli.main import _run
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.studio.app import make_app
from clearhead.studio.runs import Runs

from .conftest import LIMITS, opened
from .setting import CHARACTERS, make

Of = Callable[[str], Predictor]
MODELS = ["writer", "windowed", "recurrent"]
OTHERS = 16
PLAYED = [case for case in CASES if case.prompt and not case.stops and case.max_tokens < 256]  # as the page allows


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("same")
    make(folder / "writer", "lm", "char", CHARACTERS)
    make(folder / "windowed", "lm", "char", CHARACTERS, "model.positions=rotary", "model.length=19")
    make(folder / "recurrent", "lm", "char", CHARACTERS, "model.architecture=rnn")
    return {name: str(folder / name) for name in MODELS}


@pytest.fixture(scope="module")
def address(paths: dict[str, str]) -> Iterator[str]:
    with opened(list(paths.values()), LIMITS) as address:
        yield address


@pytest.fixture(scope="module")
def model(paths: dict[str, str]) -> Of:
    return cache(lambda name: load(paths[name]))


def expected(model: Predictor, case: Case) -> str:
    text: str = model.generate(case.prompt, max_tokens=case.max_tokens, stops=case.stops, **case.python)
    return text[len(case.prompt) :]


def complete(address: str, **body: Any) -> tuple[int, str]:
    """The status and the body of an answer."""
    parts = urlsplit(address)
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def whole(address: str, name: str, case: Case) -> str:
    status, answer = complete(address, model=name, **case.http)
    assert status == 200, answer
    [choice] = json.loads(answer)["choices"]
    return str(choice["text"])


def streamed(address: str, name: str, case: Case) -> str:
    status, answer = complete(address, model=name, stream=True, **case.http)
    assert status == 200, answer
    *events, done, end = answer.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return "".join(json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_alone(address: str, model: Of, name: str, case: Case) -> None:
    text = expected(model(name), case)
    assert whole(address, name, case) == text
    assert streamed(address, name, case) == text


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("name", MODELS)
def test_among_others(address: str, model: Of, name: str, ask: Callable[..., str]) -> None:
    """17 requests at a time, of every kind."""
    cases = list(islice(cycle(CASES), 3 * (OTHERS + 1)))
    with ThreadPoolExecutor(OTHERS + 1) as clients:
        texts = list(clients.map(lambda case: ask(address, name, case), cases))
    wanted = {case.name: expected(model(name), case) for case in CASES}
    assert [(case.name, text) for case, text in zip(cases, texts, strict=True)] == [
        (case.name, wanted[case.name]) for case in cases
    ]


def test_beam_search_returns_the_n_best(address: str, model: Of) -> None:
    body: dict[str, Any] = {"model": "writer", "prompt": "we", "max_tokens": 9, "beams": 4, "n": 3}
    choices = json.loads(complete(address, **body)[1])["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["text"] for choice in choices}) == 3
    assert "we" + choices[0]["text"] == model("writer").generate("we", max_tokens=9, beam_width=4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"beams": 2, "n": 3}, "n_best=3 needs at least as many beams, and beam_width=2"),
        ({"beams": 2, "temperature": 0.5}, "temperature=0.5 is for sampling and beam_width=2 for beam search"),
        ({"beams": 2, "logprobs": 1}, "logprobs: a beam search keeps no alternatives"),
        ({"beams": 16, "max_tokens": 480, "prompt": ["a", "b"]}, "15,360 tokens are more than the 8,192"),
        ({"groups": 2}, "beam_width=1 is not divisible by beam_groups=2"),
    ],
)
def test_contradictory_settings_are_refused(address: str, body: dict[str, Any], message: str) -> None:
    status, answer = complete(address, **{"model": "writer", "prompt": "a", **body})
    assert status == 400
    assert json.loads(answer)["error"]["message"].startswith(message)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_the_command_line(
    paths: dict[str, str], model: Of, capsys: pytest.CaptureFixture[str], name: str, case: Case
) -> None:
    assert _run(["generate", paths[name], case.prompt, *case.options], debug=True) == 0
    assert capsys.readouterr().out == f"{case.prompt}{expected(model(name), case)}\n"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", PLAYED, ids=str)
def test_in_the_studio(paths: dict[str, str], model: Of, tmp_path: Path, name: str, case: Case) -> None:
    service = Service.load([paths[name]], LIMITS)
    body = {name: value for name, value in case.http.items() if name not in ("prompt", "max_tokens", "stop")}
    with TestClient(make_app(service, Runs(tmp_path), Access()), base_url="http://127.0.0.1") as client:
        body |= {"model": name, "text": case.prompt, "longest": case.max_tokens}
        lines = client.post("/studio/api/play", json=body).text.splitlines()
    assert json.loads(lines[-1])["text"] == expected(model(name), case)
