"""Mutated requests are answered or refused: never an error of ours, never late, nothing read or written elsewhere.

`make test-slow` sends 100,000, in parts that can be repeated alone (`-k "requests and 30000"`).
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.mutations import change_bytes, change_tree, no_longer_than, nodes, nothing_outside

from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits
from clearhead.serve.server import create_app

from .setting import png

# Of a form that was cut off, starlette leaves the file to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*SpooledTemporaryFile:pytest.PytestUnraisableExceptionWarning")
LETTERS = "we bread \u0416\u00e9\U0001f600\ud800\n{<"
SECONDS, PART = 5.0, 1000
IMAGE = base64.b64encode(png()).decode()
TEXT = "we are eating bread"
WRITING: dict[str, Any] = {
    "max_tokens": 5, "temperature": 0.7, "top_p": 0.9, "top_k": 9, "min_p": 0.01, "seed": 3, "stop": ["z"], "n": 2,
    "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1, "no_repeat": 3, "banned_tokens": [7],
}  # fmt: skip
MESSAGES = [{"role": "user", "content": "ab"}]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {**WRITING, "model": "writer", "prompt": ["ab", "c"], "logprobs": 2, "echo": True}),
    ("/v1/completions", {**WRITING, "model": "learned", "prompt": [[5, 7], [9]], "stream": True}),
    ("/v1/completions", {"model": "writer", "prompt": "ab", "max_tokens": 3, "look": {"probes": ["*.weights"]}}),
    ("/v1/completions", {"model": "recurrent", "prompt": [3, 5], "max_tokens": 4, "beams": 4, "groups": 2}),
    ("/v1/chat/completions", {**WRITING, "model": "writer", "messages": MESSAGES, "logprobs": True, "stream": True}),
    ("/v1/embeddings", {"model": "critic", "input": [TEXT, "bread"], "encoding_format": "base64", "dimensions": 12}),
    ("/v1/embeddings", {"model": "vectors", "input": "bread"}),
    ("/translate", {"model": "translator", "text": [TEXT, "bread"], "beams": 3, "n_best": 2, "coverage_penalty": 0.2,
                    "prefix_tokens": [5], "length_penalty": 0.7}),
    ("/translate", {"model": "translator", "text": TEXT, "temperature": 0.9, "seed": 1, "top_k": 4, "min_p": 0.1}),
    ("/classify", {"model": "critic", "text": [TEXT, "door"]}),
    ("/classify", {"model": "eyes", "image": IMAGE}),
    ("/tag", {"model": "tagger", "text": [TEXT]}),
    ("/caption", {"model": "painter", "image": f"data:image/png;base64,{IMAGE}"}),
    ("/words", {"model": "vectors", "question": "neighbours", "words": ["bread"], "count": 3, "measure": "dot"}),
    ("/words", {"model": "vectors", "question": "analogy", "words": ["bread", "water", "house"]}),
    ("/look", {"model": "translator", "text": TEXT, "full": True, "target": "bread"}),
    ("/look", {"model": "writer", "text": "ab", "generate": True, "max_tokens": 4}),
    ("/predict", {"model": "masked", "input": "abc"}),
    ("/predict", {"model": "eyes", "input": IMAGE}),
]  # fmt: skip
TYPES = ("application/json", "text/plain", "multipart/form-data; boundary=edge", "application/x-www-form-urlencoded")
FORM = "".join(
    f'--edge\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
    for name, more, value in (("model", "", "eyes"), ("image", '; filename="a.png"', "IMAGE"))
)
FORM_BODY = (FORM + "--edge--\r\n").encode().replace(b"IMAGE", png())


@pytest.fixture(scope="module")
def client(runs: list[str]) -> Iterator[TestClient]:
    """A service that computes little, so that many requests are quick; on a busy machine it may take its time."""
    service = Service.load(runs, Limits(tokens=29, context=60, texts=4, characters=300, seconds=60 * SECONDS))
    with TestClient(create_app(service, Access()), base_url="http://localhost") as client:
        yield client


def vary(tree: Any, chance: random.Random) -> Any:
    """A tree with some of its values replaced by others of the same type, which are often valid."""
    for container, key in chance.sample(places := list(nodes(tree)), k=min(len(places), chance.choice((1, 2, 4)))):
        old = container[key]
        if isinstance(old, bool):
            container[key] = not old
        elif isinstance(old, int | float):
            container[key] = chance.choice((type(old)(old * 2), chance.randrange(5), chance.random()))
        elif isinstance(old, str) and key != "model":
            container[key] = "".join(chance.choices(LETTERS, k=chance.choice((0, 1, 7, 90))))
        elif isinstance(old, list):
            container[key] = old[: chance.randrange(3)] * chance.choice((1, 3))
    return tree


def mutated(chance: random.Random) -> tuple[str, str, bytes]:
    """A route, a content type and a body."""
    route, body = chance.choice(REQUESTS)
    kind = chance.randrange(10)
    if kind == 0:  # a form with an image
        changed = change_bytes(FORM_BODY, chance) if chance.randrange(4) else FORM_BODY
        return chance.choice(("/classify", "/caption", "/predict")), TYPES[2], changed
    if kind == 1:  # the body of another route
        route = chance.choice(REQUESTS)[0]
    if kind == 2:  # the fields of another route too
        body = {**chance.choice(REQUESTS)[1], **body}
    change = change_tree if kind < 6 else vary
    content = json.dumps(body if kind == 3 else change(copy.deepcopy(body), chance)).encode()
    content = change_bytes(content, chance) if kind in (3, 4) else content
    return route, chance.choice(TYPES) if kind == 5 else TYPES[0], content


def send(client: TestClient, folder: Path, numbers: range) -> Counter[int]:
    """Send requests; how often came which status. A wrong answer is an error that names its number."""
    answered: Counter[int] = Counter()
    with nothing_outside(folder):
        for number in numbers:
            route, kind, content = mutated(random.Random(number))
            case = f"request {number}: {route} {kind} {content[:300]!r}"
            try:
                with no_longer_than(SECONDS):
                    answer = client.post(route, content=content, headers={"content-type": kind})
            except Exception as problem:  # of the service, too
                raise AssertionError(f"{case}: {type(problem).__name__}: {problem}") from problem
            assert answer.status_code < 500, f"{case}: {answer.status_code} {answer.text}"
            if answer.status_code != 200:
                sentence = answer.json()["error"]["message"]
                assert sentence, case
                assert "\n" not in sentence, case
            answered[answer.status_code] += 1
    print(f"{numbers}: {dict(answered)}")
    return answered


def test_the_requests_are_answered_before_they_are_mutated(client: TestClient) -> None:
    for route, body in REQUESTS:
        answer = client.post(route, json=body)
        assert answer.status_code == 200, answer.text
    form = client.post("/classify", content=FORM_BODY, headers={"content-type": TYPES[2]})
    assert form.status_code == 200


def test_mutated_requests(client: TestClient, tmp_path: Path) -> None:
    answered = send(client, tmp_path, range(150))
    assert answered[200] > 20
    assert answered[400] > 50


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 100_000, PART))
def test_a_hundred_thousand_mutated_requests(client: TestClient, tmp_path: Path, start: int) -> None:
    assert send(client, tmp_path, range(start, start + PART)).total() == PART
