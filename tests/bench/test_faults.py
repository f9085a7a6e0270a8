"""The chaos run: it leaves a service as it was, and finds out one that gives wrong answers."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.bench.test_serve import address as broken  # the fixture of a service that knows two words
from tests.serve.conftest import opened
from tests.serve.setting import CHARACTERS, WORDS, make, sentences

from clearhead import load
from clearhead.bench import faults
from clearhead.bench.faults import (
    Client,
    Findings,
    Question,
    Supervised,
    answer_of,
    attack,
    figures,
    largest_requests,
    slots_in_use,
    slowest_health,
)
from clearhead.cli.main import _run
from clearhead.errors import ConfigError
from clearhead.serve.security import Limits

__all__ = ["broken"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("faults")
    make(folder / "translator", "translate", "word", WORDS)
    make(folder / "writer", "lm", "char", CHARACTERS, "model.positions=rotary", "model.length=19")
    return [str(folder / "translator"), str(folder / "writer")]


@pytest.fixture(scope="module")
def service(paths: list[str]) -> Iterator[str]:
    with opened(paths, Limits(patience=2.0)) as address:
        yield address


def known(paths: list[str]) -> list[Question]:
    translator, writer = map(load, paths)
    texts = sentences(11, seed=4)
    settings: dict[str, Any] = {"max_tokens": 31, "temperature": 0.8, "seed": 5}
    return [
        *(
            Question("/translate", {"model": "translator", "text": text}, frozenset({translator.translate(text)}))
            for text in texts
        ),
        *(
            Question(
                "/v1/completions",
                {"model": "writer", "prompt": text, **settings},
                frozenset({writer.generate(text, **settings)[len(text) :]}),
            )
            for text in texts
        ),
    ]


def test_faults_of_some_clients_do_not_change_the_answers_of_others(service: str, paths: list[str]) -> None:
    questions = known(paths)
    found = attack(service, questions, clients=7, seconds=2.0)
    one = Client(urlsplit(service).netloc, questions, found, lambda _start, _begun: False, Random(3))
    for question in questions[::5]:  # each fault at least some times, however slow the machine is
        for fault in (one.leave, one.read_slowly, one.send_slowly, one.send_garbage, one.ask_twice):
            fault(question)
        one.ask(question)
    assert (found.wrong, found.lost, found.failures, found.accepted, found.excused) == ([], [], [], [], 0)
    assert found.right >= 10
    assert slots_in_use(service) == 0


def test_wrong_and_lost_answers_are_found(broken: str) -> None:
    questions = [
        Question("/translate", {"model": "m", "text": "one"}, frozenset({"uno"})),
        Question("/translate", {"model": "m", "text": "two"}, frozenset({"dos"})),
        Question("/translate", {"model": "m", "text": "three"}, frozenset({"tres"})),
    ]
    parts: list[Findings] = []
    for seed in range(100):
        parts.append(attack(broken, questions, clients=3, seconds=0.1, seed=seed))
        kinds = [[case for part in parts for case in getattr(part, kind)] for kind in ("wrong", "failures", "lost")]
        if all(kinds) and any(part.right for part in parts):
            break
    wrong, failures, lost = kinds
    assert wrong[0] == "{'model': 'm', 'text': 'two'}: 'tres' instead of ['dos']"
    assert failures[0].startswith("503")
    assert lost  # it hangs up on what it cannot read
    excused = attack(broken, questions, 2, 0.5, was_down=lambda _start, _begun: True)
    assert (excused.lost, excused.failures) == ([], [])


def test_a_stream_without_its_end_is_no_answer() -> None:
    event = 'data: {"choices": [{"text": "ab"}]}\n\n'
    assert answer_of("/v1/completions", event * 2 + "data: [DONE]\n\n", stream=True) == "abab"
    assert answer_of("/v1/completions", event * 2, stream=True) is None
    assert answer_of("/v1/completions", "", stream=True) is None


def test_a_stream_without_its_end_is_a_failure(service: str, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "answer_of", lambda *_: None)
    found = Findings()
    Client(urlsplit(service).netloc, [], found, lambda _start, _begun: False, Random(3)).ask(known(paths)[-1])
    assert (found.right, found.wrong) == (0, [])
    assert found.failures[0].startswith("a stream without an end: …")


def test_figures_show_missed_bounds() -> None:
    one = Findings(requests=9, right=7, wrong=["x"])
    two = Findings(requests=8, right=5, lost=["y", "z"], faults=Counter(leave=3))
    found = {each.what: each for each in figures([one, two], (100e6, 107e6), 2.0, Counter(SIGKILL=1))}
    assert (found["requests"].value, found["answers checked"].value) == (17, 12)
    assert (found["wrong or swapped answers"].value, found["wrong or swapped answers"].holds) == (1, False)
    assert (found["lost answers"].value, found["lost answers"].holds) == (2, False)
    assert (found["5xx that were not asked for"].value, found["5xx that were not asked for"].holds) == (0, True)
    assert found["memory of the service: growth"].holds is False
    assert (found["slots in use at the end"].value, found["slots in use at the end"].holds) == (2, False)


def test_a_service_is_restarted_killed_and_found_again(
    paths: list[str], commands_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    now = [0.0]

    def sleep(seconds: float) -> None:
        if seconds >= 10:
            now[0] += seconds  # between two restarts
        else:
            time.sleep(seconds)

    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with closing(Supervised(paths[:1])) as service:
        service.restart_until(25.0)
        assert faults.is_ready(service.address)
        assert (service.restarts, now[0]) == ({"SIGTERM": 1, "SIGKILL": 1}, 20)
        assert service.was_down(19, begun=True)
        assert not service.was_down(21, begun=False)
    assert not faults.is_ready(service.address)


def test_a_service_that_cannot_start_is_a_sentence(commands_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(commands_folder / "python"))
    with pytest.raises(ConfigError, match="the service did not start; its message is above"):
        Supervised(["no-such-model"])


def test_questions_have_the_answers_of_the_models(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = sentences(3, seed=4)
    monkeypatch.setattr(faults, "TRANSLATOR", paths[0])
    monkeypatch.setattr(faults, "WRITER", paths[1])
    monkeypatch.setattr(faults, "real_sentences", lambda count: texts[:count])
    found = faults.known_questions(3)
    assert [question.route for question in found] == ["/translate"] * 3 + ["/v1/completions"] * 3
    assert load(paths[0]).translate(texts[1]) in found[1].answers
    body = found[4].body
    settings = {key: body[key] for key in ("max_tokens", "temperature", "seed")}
    assert found[4].answers == {load(paths[1]).generate(texts[1], **settings)[len(texts[1]) :]}


def test_only_serve_has_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["bench", "core", "--faults"], debug=False) == 2
    assert capsys.readouterr().err == "clearhead: --faults is a part of bench serve, not of bench core\n"


def test_health_is_asked_while_the_largest_requests_are_answered(service: str) -> None:
    """No bound here: a busy machine answers late. That it is asked, and that all are answered or refused."""
    found = slowest_health(service, largest_requests("translator", "writer"))
    assert found.detail["ms"].keys() >= {"millions of wrong ids", "one long text", "a text to look at"}
    assert all(milliseconds > 0 for milliseconds in found.detail["ms"].values())
    assert (found.unit, found.limit) == ("ms", 100.0)
