"""Rows of unequal length in one state: each computes what it would compute alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.small import PARTS, POSITIONS, VOCABULARY, make, native_of, sources

from clearhead.decode import Row, Settings, TokenLoop
from clearhead.engines.native import engine
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import load_library

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_merged_rows_equal_separate_ones(positions: str, parts: tuple[str, ...]) -> None:
    model, draw = native_of(make("lm", f"model.positions={positions}", *parts)), torch.Generator().manual_seed(3)
    states, separate = [], []
    for rows, tokens in ((2, 3), (1, 17), (3, 1)):
        ids = torch.randint(VOCABULARY, (rows, tokens), generator=draw)
        states.append(model.step(ids, model.start())[1])
        separate += [model.step(row[None], model.start())[1] for row in ids]
    merged: Any = model.merge(states)
    for tokens, order in ((1, [0, 1, 2, 3, 4, 5]), (2, [5, 3, 1, 0]), (1, [2, 0]), (3, [1])):
        ids = torch.randint(VOCABULARY, (len(separate), tokens), generator=draw)
        logits, merged = model.step(ids, merged)
        for row, state in enumerate(separate):
            assert torch.equal(logits[row], model.step(ids[row][None], state)[0][0])
        merged, separate = model.reorder(merged, torch.tensor(order)), [separate[row] for row in order]


@pytest.mark.parametrize("window", [None, 5])
@torch.inference_mode()
def test_slots_of_rows_that_left_are_reused(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row stays for 300 tokens while others come and go."""
    monkeypatch.setattr(engine, "SLOTS", 16)
    monkeypatch.setattr(engine, "BLOCK", 4)
    model = native_of(make("lm", "model.positions=rotary"))
    _, alone = model.step(torch.tensor([[7, 5]]), model.start(window=window))
    _, merged = model.step(torch.tensor([[7, 5]]), model.start(window=window))
    for step in range(300):
        if step % 3 == 0:
            _, other = model.step(torch.tensor([[11] * (step % 7 + 1)]), model.start(window=window))
            both: Any = model.merge([merged, other])
            merged = both
        ids = torch.tensor([[step % VOCABULARY]] * len(merged.lists))
        logits, merged = model.step(ids, merged)
        assert torch.equal(logits[0], model.step(ids[:1], alone)[0][0])
        if step % 3 == 2:
            merged = model.reorder(merged, torch.tensor([0]))
    assert merged.length == 302
    assert merged.pool.keys.size(1) <= (150 if window else 2000)


@torch.inference_mode()
def test_slots_of_every_state_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that share a pool go on by turns, and blocks are looked for again and again."""
    monkeypatch.setattr(engine, "SLOTS", 16)
    monkeypatch.setattr(engine, "BLOCK", 4)
    model, first, second = native_of(make("lm", "model.positions=rotary")), [7, 5, 3], [11, 2]
    states = [model.step(torch.tensor([ids]), model.start())[1] for ids in (first, second)]
    apart = [model.step(torch.tensor([ids]), model.start())[1] for ids in (first, second)]
    merged: Any = model.merge(states)
    shared = [model.reorder(merged, torch.tensor([row])) for row in (0, 1)]
    assert shared[0].pool is shared[1].pool
    for step in range(150):
        for row in (0, 1, 1) if step % 2 else (1, 0):
            ids = torch.tensor([[(step + row) % VOCABULARY]])
            logits, shared[row] = model.step(ids, shared[row])
            expected, apart[row] = model.step(ids, apart[row])
            assert torch.equal(logits, expected)
    used = {int(slot) for state in shared for slots in state.slots() for slot in slots}
    free = shared[0].pool.free[: shared[0].pool.free_count]
    assert not used & {int(slot) + i for slot in free for i in range(4)}


@settings(max_examples=30, deadline=None)
@given(used=st.lists(st.integers(0, 36), max_size=20), size=st.integers(1, 7), count=st.integers(1, 9))
def test_free_blocks_have_no_slot_that_is_used(used: list[int], size: int, count: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(engine, "BLOCK", size)
        pool = engine.SlotPool(torch.zeros(2, 37, 3), torch.zeros(2, 37, 5), used=37)
        state = engine.NativeState(pool, torch.tensor([used], dtype=torch.int32), length=len(used))
        pool.reserve_blocks(count)
        taken = pool.take_blocks(count)
    assert len(set(taken.tolist())) == count * size
    assert not set(taken.tolist()) & set(used)
    assert int(taken.max()) < pool.capacity
    assert state.pool is pool


def test_states_that_do_not_fit_stay_apart() -> None:
    model = native_of(make("lm", "model.positions=rotary"))
    assert model.merge([model.start(window=5), model.start()]) is None
    translator = native_of(make("translate"))
    assert translator.merge([translator.start(sources(2)), translator.start(sources(1))]) is None


ROWS = [
    ([5, 6, 7], {"temperature": 0.9, "seed": 1}),
    ([5] * 19, {"repetition_penalty": 1.4}),
    ([8, 9], {"temperature": 1.2, "seed": 2, "top_k": 5}),
    ([3, 3, 4, 1], {"no_repeat_ngram": 2}),
    ([6], {"beam_width": 3}),
    ([7, 7], {"temperature": 0.7, "seed": 5, "return_logprobs": True}),
    ([12, 11], {}),
]


def row(number: int) -> Row:
    prompt, how = ROWS[number]
    return Row(prompt, Settings(max_tokens=12 + 3 * number, **how), stop=2)


@pytest.fixture(scope="module")
def joined() -> NativeEngine:
    return native_of(make("lm", "model.positions=rotary"))


@pytest.fixture(scope="module")
def alone(joined: NativeEngine) -> list[Row]:
    """Every row when nothing else runs."""
    rows = [row(number) for number in range(len(ROWS))]
    for each in rows:
        loop = TokenLoop(joined)
        loop.add([each], joined.start())
        while loop.active:
            loop.step()
    return rows


@settings(max_examples=25, deadline=None)
@given(joins=st.lists(st.integers(0, 9), min_size=len(ROWS), max_size=len(ROWS)), cancelled=st.integers(0, 6))
def test_a_text_does_not_depend_on_when_others_join(
    joined: NativeEngine, alone: list[Row], joins: list[int], cancelled: int
) -> None:
    model = joined
    rows, loop, largest = [row(number) for number in range(len(ROWS))], TokenLoop(model), 0
    for step in range(100):
        for number, join in enumerate(joins):
            if join == step:
                loop.add([rows[number]], model.start())
        if step == 11:
            rows[cancelled].cancel()
        loop.step()
        largest = max([largest, *(len(group.rows) for group in loop.groups)])
    assert not loop.active
    for number, (one, other) in enumerate(zip(rows, alone, strict=True)):
        if number != cancelled:
            assert (one.ids, one.end) == (other.ids, other.end)
            assert one.hypotheses[0].logprobs == other.hypotheses[0].logprobs
    if len(set(joins)) == 1:
        assert largest > 1
