"""A state that has read the beginning of a prompt changes no token of what follows it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.engines.small import VOCABULARY, make, native_of, sources

from clearhead.decode import Row, Settings, TokenLoop
from clearhead.decode.prefixes import SHORTEST, PrefixCache
from clearhead.engines.native import engine
from clearhead.engines.native.library import load_library

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")

SETTINGS = Settings(max_tokens=13, temperature=0.9, seed=3)


def prompt(length: int, seed: int, shared: int = 0) -> list[int]:
    """Tokens of which the first are those of the seed 0."""
    first = torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    own = torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return first[:shared] + own[shared:]


def generate(
    model: Any, cache: PrefixCache | None, tokens: list[int], window: int | None = None
) -> tuple[list[int], int]:
    """The text, and how many tokens of the prompt were known."""
    loop, row = TokenLoop(model), Row(tokens, SETTINGS)
    state, read = model.start(), 0
    if cache is not None:
        row.on_read = lambda state, index: cache.keep(model, None, tokens, state, index)
        state, read = cache.start(model, None, tokens) or (state, 0)
    loop.add([row], state, read)
    while loop.active:
        loop.step()
    return row.generated, read


@pytest.mark.parametrize("positions", ["rotary", "learned", "alibi", "none"])
@pytest.mark.parametrize("int8", [False, True])
def test_no_token_changes(positions: str, int8: bool) -> None:
    model, cache = native_of(make("lm", f"model.positions={positions}"), int8), PrefixCache(300)
    known = []
    for tokens in (prompt(41, 1), prompt(41, 2, shared=29), prompt(37, 0), prompt(47, 3, shared=31), prompt(37, 0)):
        text, read = generate(model, cache, tokens)
        assert text == generate(model, None, tokens)[0]
        known.append(read)
    assert known == [0, 0, 29, 31, 36]  # of a known prompt the last token is read again


def test_rows_that_go_on_from_a_prefix_share_a_step_with_others() -> None:
    model, cache = native_of(make("lm", "model.positions=rotary")), PrefixCache(300)
    prompts = [prompt(41, seed, shared=31) for seed in (1, 2, 3)]
    alone = [generate(model, None, each)[0] for each in prompts]
    loop, rows = TokenLoop(model), [Row(each, SETTINGS) for each in prompts]
    rows[0].on_read = lambda state, index: cache.keep(model, None, prompts[0], state, index)
    loop.add(rows[:1], model.start())
    loop.step()
    for row in rows[1:]:
        found = cache.start(model, None, row.prompt)
        assert found is not None
        assert found[1] == 31
        loop.add([row], *found)
    while loop.active:
        loop.step()
    assert [row.generated for row in rows] == alone


def test_models_windows_and_short_prefixes_are_kept_apart() -> None:
    models, cache = [native_of(make("lm", "model.positions=rotary")) for _ in range(2)], PrefixCache(300)
    generate(models[0], cache, prompt(41, 0))
    assert cache.start(models[1], None, prompt(41, 0)) is None
    assert cache.start(models[0], 7, prompt(41, 0)) is None
    assert cache.start(models[0], None, prompt(41, 5, shared=SHORTEST - 1)) is None
    assert cache.start(models[0], None, prompt(41, 0)) is not None
    assert cache.start(models[0], None, prompt(41, 0)[: SHORTEST + 1]) is not None


def test_a_window_that_has_dropped_tokens_keeps_nothing() -> None:
    model = native_of(make("lm", "model.positions=rotary"))
    state = model.start(window=5)
    for _ in range(30):
        _, state = model.step(torch.ones(1, 97, dtype=torch.int64), state)
    assert state.first > 0
    assert model.prefix(state, 0, 50) is None


@pytest.mark.parametrize("window", [None, 5])
@torch.inference_mode()
def test_what_begins_with_a_kept_prompt_does_not_change_it(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BLOCK", 4)
    model = native_of(make("lm", "model.positions=rotary"))
    _, state = model.step(torch.tensor([prompt(17, 0)]), model.start(window=window))
    kept: Any = model.prefix(state, 0, 16)
    before = kept.pool.keys.clone(), kept.pool.values.clone()
    first, second = (model.prefix(kept, 0, length) for length in (13, 16))
    assert first.pool.keys.data_ptr() == kept.pool.keys.data_ptr()  # not copied yet
    for states in ([first, model.start(window=window)], [first, second]):
        merged: Any = model.merge(states)
        for step in range(50):
            _, merged = model.step(torch.full((len(merged.lists), 1), step % VOCABULARY), merged)
    assert torch.equal(kept.pool.keys, before[0])
    assert torch.equal(kept.pool.values, before[1])


def test_the_cache_is_as_large_as_asked_and_drops_what_was_used_least_recently() -> None:
    model, cache = native_of(make("lm", "model.positions=rotary")), PrefixCache(100)
    for seed in (1, 2, 1, 3):  # 3 × 41 tokens are too many: 2 has to go
        generate(model, cache, prompt(41, seed))
    assert [cache.start(model, None, prompt(41, seed)) is not None for seed in (1, 2, 3)] == [True, False, True]
    generate(model, cache, prompt(101, 4))
    assert cache.start(model, None, prompt(101, 4)) is None
    none = PrefixCache(0)
    generate(model, none, prompt(41, 1))
    assert none.start(model, None, prompt(41, 1)) is None


def test_a_longer_prompt_replaces_its_beginning() -> None:
    model, cache = native_of(make("lm", "model.positions=rotary")), PrefixCache(300)
    for length in (20, 30, 40):
        generate(model, cache, prompt(length, 0))
    assert [len(entry.prompt) for entry in cache._entries] == [40]


def test_a_state_with_a_source_has_no_prefix() -> None:
    model = native_of(make("translate"))
    _, state = model.step(torch.ones(3, 20, dtype=torch.int64), model.start(sources(3)))
    assert model.prefix(state, 0, 20) is None
