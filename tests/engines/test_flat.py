"""Flat steps say what the model says, to the last digits, whatever its parts, and through every change of rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.small import PARTS, POSITIONS, VOCABULARY, make, sources

from clearhead.decode import Settings, Special, write_all
from clearhead.engines.choose import Engines
from clearhead.engines.flat import ROOM, Flat, can_be_flat


def begin(model: object, task: str, rows: int) -> object:
    return model.start(sources(rows)) if task == "translate" else model.start()  # type: ignore[attr-defined]


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("task", ["translate", "lm"])
@torch.inference_mode()
def test_flat_steps_equal_the_models(task: str, positions: str, parts: Sequence[str]) -> None:
    network = make(task, f"model.positions={positions}", *parts).double()
    flat = Flat(network)  # type: ignore[arg-type]
    slow, fast = (begin(model, task, 3) for model in (network, flat))
    draw, rows = torch.Generator().manual_seed(7), 3
    orders = (
        (5, [0, 0, 1, 1, 2, 2]),
        (1, [1, 0, 3, 3, 4, 5]),
        (1, [2, 0, 0, 1, 2]),
        (17, [4, 1]),
        (3, [0, 0, 1]),
        (1, [2]),
    )
    for tokens, order in orders:
        ids = torch.randint(VOCABULARY, (rows, tokens), generator=draw)
        expected, slow = network.step(ids, slow)  # type: ignore[operator]
        found, fast = flat.step(ids, fast)  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        slow, fast = network.reorder(slow, torch.tensor(order)), flat.reorder(fast, torch.tensor(order))  # type: ignore[operator]
        rows = len(order)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    positions=st.sampled_from(POSITIONS),
    parts=st.sampled_from(PARTS),
    beams=st.sampled_from([1, 2, 5]),
    rows=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_the_same_texts_are_found(positions: str, parts: Sequence[str], beams: int, rows: int, seed: int) -> None:
    network = make("translate", f"model.positions={positions}", *parts, seed=seed).double()
    chosen = Settings(beams=beams, n_best=beams, longest=13, scored=True)
    asked = [[int(x) for x in row if x] for row in sources(rows)]
    slow = write_all(network, asked, Special(0, 1, 2), chosen)
    fast = write_all(Flat(network), asked, Special(0, 1, 2), chosen, rows=2)  # type: ignore[arg-type]
    for one, other in zip(slow, fast, strict=True):
        assert [each.ids for each in one] == [each.ids for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-9)


@torch.inference_mode()
def test_beams_of_a_sentence_share_its_keys() -> None:
    flat = Flat(make("translate"))  # type: ignore[arg-type]
    state = flat.start(sources(3))
    shared = flat.reorder(state, torch.tensor([0, 0, 1, 1, 2, 2]))
    assert shared.across[0][0] is state.across[0][0]
    left = flat.reorder(shared, torch.tensor([4, 5, 1, 0]))  # the second sentence leaves, the others change places
    assert torch.equal(left.across[0][0], state.across[0][0][[2, 0]])
    assert left.sentence == [0, 0, 1, 1]
    uneven = flat.reorder(left, torch.tensor([0, 2, 3]))
    assert torch.equal(uneven.across[0][0], state.across[0][0][[2, 0, 0]])


@pytest.mark.parametrize("positions", ["rotary", "alibi", "t5"])
@torch.inference_mode()
def test_a_window_keeps_the_memory_and_changes_nothing_else(positions: str) -> None:
    network = make("lm", f"model.positions={positions}").double()
    flat = Flat(network)  # type: ignore[arg-type]
    slow, fast = network.start(window=5), flat.start(window=5)  # type: ignore[operator]
    for place in range(60):
        ids = torch.tensor([[(7 * place) % VOCABULARY], [(5 * place) % VOCABULARY]])
        expected, slow = network.step(ids, slow)  # type: ignore[operator]
        found, fast = flat.step(ids, fast)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert fast.keys[0].size(2) <= ROOM
    assert fast.length == 60


def test_what_has_parts_of_its_own_stays_as_it_is() -> None:
    usual, own = make("translate"), make("translate", "model.score=additive")
    assert can_be_flat(usual)
    assert not can_be_flat(own)
    assert isinstance(Engines(usual, "torch").stepper(), Flat)
    assert Engines(own, "torch").stepper() is own
    assert Engines(usual, "torch").stepper(settings=Settings(beams=2, coverage_penalty=0.1)) is usual
