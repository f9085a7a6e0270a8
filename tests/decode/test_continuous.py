"""Continuous batching: texts that begin at different times, with different settings, are generated in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.serve.setting import CHARACTERS, make

from clearhead import load
from clearhead.decode import Row, Settings, SpecialTokens, TokenLoop

CASES: list[tuple[int, str, dict[str, Any]]] = [  # the step at which it joins, its prompt and settings
    (0, "we are eat", {"temperature": 0.0}),
    (0, "a", {"temperature": 0.8, "seed": 3}),
    (2, "the old house with a small", {"temperature": 1.1, "seed": 5, "top_k": 7}),
    (3, "bre", {"temperature": 0.0, "repetition_penalty": 1.5}),
    (3, "water", {"temperature": 0.9, "seed": 2, "top_p": 0.8, "no_repeat_ngram": 2}),
    (7, "do", {"temperature": 0.7, "seed": 11, "min_p": 0.1, "banned_tokens": (5, 9)}),
]


@pytest.mark.parametrize("settings", [(), ("model.positions=rotary", "model.length=19"), ("model.architecture=rnn",)])
def test_rows_with_different_settings_share_a_step(tmp_path: Path, settings: tuple[str, ...]) -> None:
    make(tmp_path / "writer", "lm", "char", CHARACTERS, *settings)
    model: Any = load(tmp_path / "writer")
    stepper = model.engines.stepper()
    if not hasattr(stepper, "merge"):
        pytest.skip("no native library: torch cannot merge states of unequal length")
    window = model.window(10**9)
    loop, sizes = TokenLoop(stepper), list[int]()
    rows = [Row(model.tokenizer.encode(text), Settings(max_tokens=43, **more)) for _, text, more in CASES]
    for step in range(200):
        for (when, _, _), row in zip(CASES, rows, strict=True):
            if when == step:
                loop.add([row], stepper.start() if window is None else stepper.start(window=window))
        if not loop.active:
            break
        loop.step()
        sizes.append(len(loop.groups))
    assert sizes[8:40] == [1] * 32  # all of them, once the last prompt is read
    assert step < 55
    for row, (_, text, more) in zip(rows, CASES, strict=True):
        alone = model.engines.stream(row.prompt, model.special, Settings(max_tokens=43, **more), window)
        ids = list(alone)
        assert row.generated[: len(ids)] == ids, text  # without a stop token the row goes on


@torch.inference_mode()
def test_a_row_whose_prompt_is_known_joins_without_a_step_of_its_own(tmp_path: Path) -> None:
    """One with wrong settings fails by itself, and the others go on."""
    make(tmp_path / "writer", "lm", "char", CHARACTERS)
    model: Any = load(tmp_path / "writer")
    stepper = model.engines.stepper()
    if not hasattr(stepper, "merge"):
        pytest.skip("no native library: torch cannot merge states of unequal length")
    prompt, loop, failed = model.tokenizer.encode("we are eating bread"), TokenLoop(stepper), list[Exception]()
    _, read = stepper.step(torch.tensor([prompt]), stepper.start())
    rows = [
        Row(prompt, Settings(max_tokens=23, temperature=1.0, seed=seed, banned_tokens=banned))
        for seed, banned in enumerate([(), (), (10**6,)])
    ]
    rows[2].on_error = lambda _, problem: failed.append(problem)
    loop.add(rows[:1], stepper.start())
    loop.step()
    for row in rows[1:]:
        loop.add([row], stepper.prefix(read, 0, len(prompt) - 1), len(prompt) - 1)
    loop.step()
    assert [len(group.rows) for group in loop.groups] == [2]
    assert [len(row.generated) for row in rows] == [2, 1, 0]
    assert [str(problem) for problem in failed] == [
        f"banned_tokens: there is no token 1000000 in the vocabulary of {len(model.tokenizer)} tokens"
    ]
    while loop.active:
        loop.step()
    for row in rows[:2]:
        assert row.generated == list(model.engines.stream(prompt, SpecialTokens(0, 0, None), row.settings))
