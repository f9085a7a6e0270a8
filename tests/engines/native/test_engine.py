"""Native steps equal those of the network, whatever its parts, through every change of rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.small import (
    PARTS,
    POSITIONS,
    VOCABULARY,
    assert_same_steps,
    assert_same_texts,
    assert_same_through_a_window,
    make,
    native_of,
    sources,
)

from clearhead.decode import Prompts, Settings, generate
from clearhead.engines.native import engine
from clearhead.engines.native.engine import NativeEngine
from clearhead.engines.native.library import load_library
from clearhead.errors import ShapeError, TextError

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("task", ["translate", "lm"])
def test_native_steps_equal_those_of_the_network(task: str, positions: str, parts: Sequence[str]) -> None:
    network = make(task, f"model.positions={positions}", *parts)
    assert_same_steps(network, native_of(network), task, near=2e-4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    positions=st.sampled_from(POSITIONS),
    parts=st.sampled_from(PARTS),
    beams=st.sampled_from([1, 2, 5]),
    rows=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_the_same_texts_are_found(positions: str, parts: Sequence[str], beams: int, rows: int, seed: int) -> None:
    network = make("translate", f"model.positions={positions}", *parts, seed=seed)
    assert_same_texts(network, native_of(network), beams, rows, near=1e-3, threads=2)


@pytest.mark.parametrize("threads", [1, 2, 5])
@torch.inference_mode()
def test_threads_change_no_bit(threads: int) -> None:
    network = make("translate")
    ids = torch.randint(VOCABULARY, (13, 7))
    answers = []
    for number in (1, threads):
        model = native_of(network)
        model.threads.choices = [number]
        answers.append(model.step(ids, model.start(sources(1).expand(13, -1)))[0])
    assert torch.equal(*answers)


@pytest.mark.parametrize("positions", ["rotary", "alibi", "t5"])
def test_a_window_bounds_the_memory_and_changes_nothing_else(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SLOTS", 7)
    network = make("lm", f"model.positions={positions}")
    state = assert_same_through_a_window(network, native_of(network), near=2e-4)
    assert state.pool.keys.size(1) == 8 * 7  # of 2 × 60 tokens


@torch.inference_mode()
@pytest.mark.parametrize("size", [7, 64, 307, 449, 1409, 65_537, 131_101])  # fewer spans than tokens, more, longer ones
@pytest.mark.parametrize("kind", ["different", "equal", "banned"])
def test_the_best_tokens_are_the_first_of_the_largest(size: int, kind: str) -> None:
    logits = torch.randn(5, size) * 5
    if kind == "equal":
        logits = logits.round()
    elif kind == "banned":
        logits[:, torch.randperm(size)[: size - 7]] = -torch.inf
    values, tokens, total = native_of(make("lm")).best(logits, 7)
    order = logits.sort(stable=True, descending=True)
    assert torch.equal(values, order.values[:, :7])
    assert torch.equal(tokens, order.indices[:, :7])
    torch.testing.assert_close(total, logits.logsumexp(-1))


@torch.inference_mode()
def test_int8_is_close_but_not_equal() -> None:
    network = make("lm")
    whole, rounded = native_of(network), native_of(network, int8=True)
    ids = torch.randint(VOCABULARY, (3, 7))
    exact, near = (model.step(ids, model.start())[0] for model in (whole, rounded))
    assert not torch.equal(exact, near)
    assert (exact - near).abs().max() < 0.05 * exact.abs().max()


def test_a_long_prompt_is_read_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make("lm", "model.positions=rotary")
    model = native_of(network)
    prompt = [(11 * place) % VOCABULARY for place in range(41)]
    texts = []
    for chunk in (1, 7, 512):
        monkeypatch.setattr("clearhead.decode.stepper.PART", chunk)
        for each in (network, model):
            [[found]] = generate(each, each.start(), Prompts([prompt]), Settings(max_tokens=9))  # type: ignore[operator, arg-type]
            texts.append(found.ids)
    assert len({tuple(text) for text in texts}) == 1


@pytest.mark.parametrize(
    ("task", "parts", "reason"),
    [
        ("translate", ("model.score=additive",), "a custom attention score or normalisation"),
        ("translate", ("model.norm=batch",), "the norm BatchNorm"),
        ("translate", ("model.architecture=rnn",), "it is not a Transformer that generates tokens"),
    ],
)
def test_unsupported_features_are_named(task: str, parts: Sequence[str], reason: str) -> None:
    assert NativeEngine.unsupported_features(make(task, *parts))[0] == reason
    assert NativeEngine.unsupported_features(make(task).double()) == ["it computes in torch.float64 on cpu"]


@pytest.mark.parametrize("wrong", [VOCABULARY, -1, 2**31 + 3, 2**32 + 5, 10**30])
def test_an_id_outside_of_the_table_is_refused_by_search(wrong: int) -> None:
    for task, source in (("lm", []), ("translate", [sources(2)])):
        model = native_of(make(task))
        prompts = Prompts([[5, 7], [5, wrong]])
        state = model.reorder(model.start(*source), torch.arange(2))
        assert model.can_search(state, prompts, Settings(max_tokens=3))
        with pytest.raises(
            TextError, match=f"^there is no token {wrong}: the model knows {VOCABULARY}, counted from 0$"
        ):
            model.search(state, prompts, Settings(max_tokens=3))


@pytest.mark.parametrize("wrong", [VOCABULARY, -1, 2**31 + 3, 2**32 + 5])
@torch.inference_mode()
def test_an_id_outside_of_the_table_is_refused_by_a_step_and_by_the_encoder(wrong: int) -> None:
    sentence = f"^there is no token {wrong}: the model knows {VOCABULARY}, counted from 0$"
    model = native_of(make("translate"))
    source = sources(3)
    with pytest.raises(TextError, match=sentence):
        model.step(torch.tensor([[5], [wrong], [7]]), model.start(source))
    source[1, 2] = wrong
    with pytest.raises(TextError, match=sentence):
        model.start(source)


@torch.inference_mode()
def test_no_rows_and_no_tokens_are_empty_results_as_in_torch() -> None:
    for task, source in (("lm", []), ("translate", [sources(3)])):
        network = make(task)
        for model in (network, native_of(network)):
            for shape, rows in (((0, 1), []), ((3, 0), [0, 1, 2])):
                state = model.reorder(model.start(*source), torch.tensor(rows, dtype=torch.int64))  # type: ignore[operator]
                logits, _ = model.step(torch.empty(shape, dtype=torch.int64), state)  # type: ignore[operator]
                assert logits.shape == (*shape, VOCABULARY)
            if source:
                none = model.start(torch.empty(0, 5, dtype=torch.int64))  # type: ignore[operator]
                assert model.step(torch.empty(0, 1, dtype=torch.int64), none)[0].shape == (0, 1, VOCABULARY)  # type: ignore[operator]


@torch.inference_mode()
def test_rows_that_a_state_does_not_have_are_refused() -> None:
    model = native_of(make("translate"))
    for rows in (2, 5):
        with pytest.raises(ShapeError, match=f"^a step of {rows} rows from a state of 3$"):
            model.step(torch.full((rows, 1), 5), model.start(sources(3)))
    model = native_of(make("lm"))
    _, state = model.step(torch.full((3, 2), 5), model.start())
    with pytest.raises(ShapeError, match=r"^a step of 4 rows from a state of 3$"):
        model.step(torch.full((4, 1), 5), state)
    for count in (0, 308):
        with pytest.raises(ShapeError, match=f"^the best {count} of 307 tokens$"):
            model.best(torch.randn(11, 307), count)


@torch.inference_mode()
def test_texts_beyond_the_table_of_positions_are_refused() -> None:
    sentence = "^a sequence of 65 tokens is longer than the learned table of 64 positions"
    model = native_of(make("lm", "model.positions=learned"))
    _, state = model.step(torch.ones(2, 61, dtype=torch.int64), model.start())
    with pytest.raises(ShapeError, match=sentence):
        model.step(torch.ones(2, 4, dtype=torch.int64), state)
    model = native_of(make("translate", "model.positions=learned"))
    with pytest.raises(ShapeError, match=sentence):
        model.start(torch.ones(3, 65, dtype=torch.int64))
    prompts = Prompts([[5] * 61])
    assert not model.can_search(model.start(sources(1)), prompts, Settings(max_tokens=4))
