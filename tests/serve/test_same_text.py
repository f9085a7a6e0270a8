"""The same settings and seed give the same text in Python, over HTTP, on the command line and in the Studio."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from itertools import cycle, islice
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient
from tests.generation_cases import CASES, TRANSLATIONS, Case

from clearhead import Predictor, load
from clearhead.cli.main import _run
from clearhead.serve.registry import Service
from clearhead.serve.security import Access
from clearhead.studio.app import make_app
from clearhead.studio.runs import Runs

from .conftest import LIMITS, opened
from .setting import CHARACTERS, WORDS, make

Of = Callable[[str], Predictor]
Ask = Callable[[str, str, Case], str]
Expected = Callable[[str, Case], str]
MODELS = ["writer", "windowed", "recurrent"]
TRANSLATIONS_OF = {  # a recurrent network has no attention to the source that could cover it
    "translator": TRANSLATIONS,
    "recurrent-translator": [case for case in TRANSLATIONS if "coverage_penalty" not in case.python],
}
OTHERS = 16
# The page has no stop strings, no empty text, and at most 256 tokens.
PLAYED = [case for case in CASES if case.prompt and not case.stops and case.max_tokens <= 256]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("same")
    make(folder / "writer", "lm", "char", CHARACTERS)
    make(folder / "windowed", "lm", "char", CHARACTERS, "model.positions=rotary", "model.length=19")
    make(folder / "recurrent", "lm", "char", CHARACTERS, "model.architecture=rnn")
    make(folder / "translator", "translate", "word", WORDS)
    make(folder / "recurrent-translator", "translate", "word", WORDS, "model.architecture=rnn")
    return {name: str(folder / name) for name in (*MODELS, *TRANSLATIONS_OF)}


@pytest.fixture(scope="module")
def address(paths: dict[str, str]) -> Iterator[str]:
    with opened(list(paths.values()), LIMITS) as address:
        yield address


@pytest.fixture(scope="module")
def studio(paths: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    service, runs = Service.load(list(paths.values()), LIMITS), Runs(tmp_path_factory.mktemp("runs"))
    with TestClient(make_app(service, runs, Access()), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
def model(paths: dict[str, str]) -> Of:
    return cache(lambda name: load(paths[name]))


@pytest.fixture(scope="module")
def expected(model: Of) -> Expected:
    """What `Model.generate` writes, once for all surfaces."""
    cases = {case.name: case for case in CASES}

    @cache
    def text(model_name: str, case_name: str) -> str:
        case = cases[case_name]
        written: str = model(model_name).generate(
            case.prompt, max_tokens=case.max_tokens, stops=case.stops, **case.python
        )
        return written[len(case.prompt) :]

    return lambda name, case: text(name, case.name)


def expected_translation(model: Predictor, case: Case) -> str:
    text: str = model.translate(case.prompt, **case.python)
    return text


def post(address: str, route: str, **body: Any) -> tuple[int, str]:
    """The status and the body of an answer."""
    parts = urlsplit(address)
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=300)) as connection:
        connection.request("POST", route, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def complete(address: str, name: str, case: Case, stream: bool) -> str:
    given = {"prompt": case.prompt, "max_tokens": case.max_tokens, "stop": case.stops, "stream": stream}
    status, answer = post(address, "/v1/completions", model=name, **given, **case.http)
    assert status == 200, answer
    return answer


def whole(address: str, name: str, case: Case) -> str:
    [choice] = json.loads(complete(address, name, case, stream=False))["choices"]
    return str(choice["text"])


def streamed(address: str, name: str, case: Case) -> str:
    *events, done, end = complete(address, name, case, stream=True).split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return "".join(json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events)


def translated(address: str, name: str, case: Case) -> str:
    status, answer = post(address, "/translate", model=name, text=case.prompt, **case.http)
    assert status == 200, answer
    return str(json.loads(answer)["translation"])


def played(studio: TestClient, name: str, case: Case, max_tokens: int) -> str:
    body = {"forced" if key == "prefix_tokens" else key: value for key, value in case.http.items()}
    body |= {"model": name, "text": case.prompt, "longest": max_tokens}
    lines = studio.post("/studio/api/play", json=body).text.splitlines()
    return str(json.loads(lines[-1])["text"])


def among_others(address: str, name: str, cases: Sequence[Case], ask: Ask) -> dict[str, set[str]]:
    """The texts of each case, from 17 clients at a time that ask for every kind."""
    asked = list(islice(cycle(cases), max(3 * (OTHERS + 1), 2 * len(cases))))
    with ThreadPoolExecutor(OTHERS + 1) as clients:
        texts = list(clients.map(lambda case: ask(address, name, case), asked))
    found: dict[str, set[str]] = {}
    for case, text in zip(asked, texts, strict=True):
        found.setdefault(case.name, set()).add(text)
    return found


def test_every_rule_changes_the_text(model: Of, expected: Expected) -> None:
    """So that a surface that ignored a setting would be found out."""
    texts = {expected("writer", case) for case in CASES}
    translations = {expected_translation(model("translator"), case) for case in TRANSLATIONS}
    assert (len(texts), len(translations)) == (len(CASES), len(TRANSLATIONS))


# --- language models ---


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_alone(address: str, expected: Expected, name: str, case: Case) -> None:
    text = expected(name, case)
    assert whole(address, name, case) == text
    assert streamed(address, name, case) == text


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("name", MODELS)
def test_among_others(address: str, expected: Expected, name: str, ask: Ask) -> None:
    found = among_others(address, name, CASES, ask)
    assert found == {case.name: {expected(name, case)} for case in CASES}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_the_command_line(
    paths: dict[str, str], expected: Expected, capsys: pytest.CaptureFixture[str], name: str, case: Case
) -> None:
    stops = [word for stop in case.stops for word in ("--stop", stop)]
    words = ["generate", paths[name], case.prompt, "--max-tokens", str(case.max_tokens), *stops, *case.options]
    assert _run(words, debug=True) == 0
    assert capsys.readouterr().out == f"{case.prompt}{expected(name, case)}\n"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", PLAYED, ids=str)
def test_in_the_studio(studio: TestClient, expected: Expected, name: str, case: Case) -> None:
    assert played(studio, name, case, case.max_tokens) == expected(name, case)


def test_beam_search_returns_the_n_best(address: str, model: Of) -> None:
    body: dict[str, Any] = {"model": "writer", "prompt": "we", "max_tokens": 9, "beams": 4, "n": 3}
    choices = json.loads(post(address, "/v1/completions", **body)[1])["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["text"] for choice in choices}) == 3
    assert "we" + choices[0]["text"] == model("writer").generate("we", max_tokens=9, beam_width=4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"beams": 2, "n": 3}, "n=3 needs at least as many beams, and beams=2"),
        ({"beams": 2, "temperature": 0.5}, "temperature=0.5 is for sampling and beams=2 for beam search"),
        ({"beams": 2, "logprobs": 1}, "logprobs: a beam search keeps no alternatives"),
        ({"beams": 16, "max_tokens": 480, "prompt": ["a", "b"]}, "15,360 tokens are more than the 8,192"),
        ({"groups": 2}, "beams=1 is not divisible by groups=2"),
        ({"banned_tokens": [99_999]}, "banned_tokens: there is no token 99999 in the vocabulary of"),
        ({"banned_tokens": [5], "prefix_tokens": [5]}, "token 5 is in both prefix_tokens and banned_tokens"),
    ],
)
def test_contradictory_settings_are_refused(address: str, body: dict[str, Any], message: str) -> None:
    status, answer = post(address, "/v1/completions", **{"model": "writer", "prompt": "a", **body})
    assert status == 400
    assert json.loads(answer)["error"]["message"].startswith(message)


# --- translators ---


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in TRANSLATIONS_OF.items() for case in cases], ids=str
)
def test_a_translation_is_the_same_everywhere(
    address: str,
    studio: TestClient,
    paths: dict[str, str],
    model: Of,
    capsys: pytest.CaptureFixture[str],
    name: str,
    case: Case,
) -> None:
    text = expected_translation(model(name), case)
    assert text
    assert translated(address, name, case) == text
    assert played(studio, name, case, max_tokens=256) == text
    assert _run(["translate", paths[name], case.prompt, *case.options], debug=True) == 0
    assert capsys.readouterr().out == f"{text}\n"


@pytest.mark.parametrize(("name", "cases"), TRANSLATIONS_OF.items(), ids=TRANSLATIONS_OF)
def test_a_translation_is_the_same_among_others(address: str, model: Of, name: str, cases: list[Case]) -> None:
    found = among_others(address, name, cases, translated)
    assert found == {case.name: {expected_translation(model(name), case)} for case in cases}


def test_sampled_translations_of_a_list(address: str, model: Of) -> None:
    """Each samples its own, as in Python; with a temperature the beam width is 1 unless it is given."""
    texts = ["we are eating bread"] * 3
    status, answer = post(address, "/translate", model="translator", text=texts, temperature=1.2, seed=5)
    assert status == 200, answer
    translations = json.loads(answer)["translation"]
    assert len(set(translations)) > 1
    assert translations == model("translator").translate(texts, beam_width=1, temperature=1.2, seed=5)
