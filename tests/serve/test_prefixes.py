"""A prompt that begins like an earlier one is read from where they differ, and its text is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from clearhead.engines.native.library import load_library
from clearhead.serve.registry import Service
from clearhead.serve.security import Access, Limits
from clearhead.serve.server import create_app

from .setting import CHARACTERS, make

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")

BEGINNING = "the old house with a small red door, and bread and water near it; " * 5
ENDINGS = ("we are", "drinking", "", "we are eating")


def answers(path: Path, prefixes: int) -> tuple[list[Any], list[int]]:
    """What is answered to each ending, and how many tokens of its prompt the model had to read."""
    service = Service.load([str(path)], Limits(prefixes=prefixes, seconds=600.0))
    client = TestClient(create_app(service, Access()), base_url="http://127.0.0.1:8000")
    stepper, found, read = service.models["writer"].model.engines.stepper(), [], []
    step, sizes = stepper.step, list[int]()
    stepper.step = lambda ids, state: (sizes.append(ids.size(1)), step(ids, state))[1]  # type: ignore[func-returns-value]
    for ending in ENDINGS:
        for more in (
            {"temperature": 0},
            {"temperature": 1, "seed": 3, "n": 3},
            {"temperature": 0, "echo": True, "logprobs": 1},
        ):
            sizes.clear()
            request = {"model": "writer", "prompt": BEGINNING + ending, "max_tokens": 7, **more}
            response = client.post("/v1/completions", json=request)
            assert response.status_code == 200, response.text
            found.append(response.json()["choices"])
            read.append(max(sizes))
    service.close()
    return found, read


def test_a_known_beginning_is_not_read_again(tmp_path: Path) -> None:
    make(tmp_path / "writer", "lm", "char", CHARACTERS)
    whole, all_tokens = answers(tmp_path / "writer", prefixes=0)
    short, few_tokens = answers(tmp_path / "writer", prefixes=4096)
    assert short == whole
    assert min(all_tokens) > len(BEGINNING) - 5
    assert few_tokens[0] == all_tokens[0]  # the first prompt
    later = [few for place, few in enumerate(few_tokens) if place and place % 3 != 2]  # an echo needs all logits
    assert max(later) <= len(ENDINGS[3]) + 3
    assert few_tokens[2::3] == all_tokens[2::3]
