"""Prompt lookup makes fewer steps and changes no token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.small import VOCABULARY, make, native_of
from torch import Tensor

from clearhead.decode import Row, Settings, TokenLoop
from clearhead.decode.lookup import FIRST_GUESS, LONGEST_GUESS, PromptLookup
from clearhead.engines.native.library import load_library

needs_library = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")


class Counting:
    """An engine that counts its steps and the tokens that it reads, with or without `rewind`."""

    def __init__(self, engine: Any, rewinds: bool):
        self.engine, self.steps, self.tokens = engine, 0, 0
        self.start, self.reorder, self.merge = engine.start, engine.reorder, engine.merge
        if rewinds:
            self.rewind, self.max_length = engine.rewind, engine.max_length

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.steps, self.tokens = self.steps + 1, self.tokens + ids.numel()
        found: tuple[Tensor, Any] = self.engine.step(ids, state)
        return found


def texts(model: Any, rows: Sequence[Row], window: int | None = None, later: int = 0) -> list[list[int]]:
    """What each row generates, alone or beside the others; each joins `later` steps after the one before."""
    loop, waiting, step = TokenLoop(model), list(rows), 0
    while waiting or loop.active:
        if waiting and step >= later * (len(rows) - len(waiting)):
            loop.add([waiting.pop(0)], model.start() if window is None else model.start(window=window))
        loop.step()
        step += 1
    return [row.generated for row in rows]


CHOICES = [
    {},
    {"temperature": 0.7, "seed": 5},
    {"temperature": 1.3, "top_k": 3, "seed": 2},
    {"repetition_penalty": 1.2},
    {"no_repeat_ngram": 4},
    {"temperature": 0.4, "top_p": 0.8, "return_logprobs": True, "seed": 7},
    {"prefix_tokens": (5, 7, 9, 5, 7, 9, 5, 7)},
]


@needs_library
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    positions=st.sampled_from(["rotary", "learned", "t5"]),
    chosen=st.sampled_from(CHOICES),
    seed=st.integers(0, 9),
    stop=st.sampled_from([None, 3]),
    window=st.sampled_from([None, 7]),
    later=st.sampled_from([0, 3]),
)
def test_no_token_changes(
    positions: str, chosen: dict[str, Any], seed: int, stop: int | None, window: int | None, later: int
) -> None:
    model = native_of(make("lm", f"model.positions={positions}", seed=seed))
    prompts = [[1, *[5, 6, 7, 8] * 3], [1, 11, 12, 13, 11, 12]]
    found, steps = [], []
    for rewinds in (False, True):
        for together in (prompts[:1], prompts):
            counting = Counting(model, rewinds)
            rows = [Row(prompt, Settings(max_tokens=41, **chosen), stop) for prompt in together]
            found.append(texts(counting, rows, window, later))
            steps.append(counting.steps)
    assert found[:2] == found[2:]
    assert steps[2] <= steps[0]


@needs_library
def test_a_text_that_repeats_itself_takes_fewer_steps() -> None:
    model = native_of(make("lm", "model.positions=none", "model.layers=1"))
    counts = {}
    for rewinds in (False, True):
        counting = Counting(model, rewinds)
        [text] = texts(counting, [Row([1, 5], Settings(max_tokens=200))])
        assert len(text) == 200
        counts[rewinds] = counting.steps
    assert counts[False] == 200
    assert counts[True] < 120


@needs_library
def test_a_guess_ends_with_the_table_of_positions() -> None:
    model = native_of(make("lm", "model.positions=learned"))  # 64 positions
    [text] = texts(model, [Row([5, 7] * 30, Settings(max_tokens=5))])
    assert len(text) == 5


def test_a_guess_continues_the_last_occurrence() -> None:
    lookup = PromptLookup()
    assert lookup.guess([1, 2, 3, 4, 5], 9) == []
    ids = [1, 2, 3, 8, 9, 1, 2, 3, 6, 7, 4, 1, 2, 3]
    assert lookup.guess(ids, 9) == [6, 7][:FIRST_GUESS]
    assert lookup.guess(ids, 1) == [6]
    assert lookup.guess(ids, 0) == []


def test_guesses_grow_while_they_are_right_and_pause_when_they_are_wrong() -> None:
    lookup, ids = PromptLookup(), [1, 2, 3, *range(10, 50), 1, 2, 3]
    lengths = []
    for _ in range(5):
        guess = lookup.guess(ids, 99)
        lengths.append(len(guess))
        lookup.learn(len(guess), len(guess))
    assert lengths == [2, 4, 8, LONGEST_GUESS, LONGEST_GUESS]
    made = []
    for _ in range(20):
        guess = lookup.guess(ids, 99)
        made.append(bool(guess))
        if guess:
            lookup.learn(len(guess), 0)
    assert [i for i, each in enumerate(made) if each] == [0, 2, 5, 10, 19]


def test_an_index_of_all_tokens_equals_one_that_grew() -> None:
    ids = torch.randint(3, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    grown = PromptLookup()
    for end in range(1, len(ids) + 1):
        assert grown.guess(ids[:end], 5) == PromptLookup().guess(ids[:end], 5)


def test_without_rewind_nothing_is_guessed() -> None:
    network = make("lm")
    assert not hasattr(network, "rewind")
    [text] = texts(network, [Row([1, *[5, 6, 7, 8] * 3], Settings(max_tokens=9))])
    assert len(text) == 9
    assert max(text) < VOCABULARY
