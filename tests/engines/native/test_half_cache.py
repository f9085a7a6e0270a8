"""Keys and values in float16 beside weights that are floats: near the definition, and the same however it is read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.small import PARTS, POSITIONS, VOCABULARY, make, native_of

from clearhead.decode import Prompts, Settings, generate
from clearhead.engines.engine import Engines
from clearhead.engines.native.library import load_library
from clearhead.errors import ConfigError, EngineError

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")


def random_ids(rows: int, tokens: int, seed: int = 5) -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def logits_in_parts(model: Any, ids: torch.Tensor, parts: Sequence[int]) -> torch.Tensor:
    state, found = model.start(), []
    for part in ids.split(list(parts), dim=1):
        logits, state = model.step(part, state)
        found.append(logits)
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("parts", PARTS, ids=" ".join)
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_only_keys_and_values_are_rounded(positions: str, parts: Sequence[str]) -> None:
    network, ids = make("lm", f"model.positions={positions}", *parts), random_ids(3, 29)
    expected = copy.deepcopy(network).double()(ids)
    half, whole = (
        logits_in_parts(native_of(network, cache_type=each), ids, (17, 1, 11)).double() for each in ("f16", "f32")
    )
    largest = expected.abs().max()
    assert 1e-6 * largest < (half - whole).abs().max() < 2e-3 * largest
    assert (half - expected).abs().max() < 2e-3 * largest


@settings(max_examples=20, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (3, 1), (4, 2), (5, 5)]),
    key_dim=st.integers(1, 37).map(lambda half: 2 * half),
    value_dim=st.integers(1, 71),
    cut=st.integers(1, 22),
    threads=st.sampled_from([1, 2]),
)
def test_parts_and_threads_change_no_bit(
    heads: tuple[int, int], key_dim: int, value_dim: int, cut: int, threads: int
) -> None:
    shape = {"heads": heads[0], "kv_heads": heads[1], "key_dim": key_dim, "value_dim": value_dim}
    network = make("lm", "model.positions=rotary", *(f"model.{name}={size}" for name, size in shape.items()))
    model, ids = native_of(network, cache_type="f16"), random_ids(3, 23)
    model.threads.choices = [threads]
    with torch.inference_mode():
        at_once, apart = logits_in_parts(model, ids, (23,)), logits_in_parts(model, ids, (cut, 23 - cut))
        one_by_one, whole = logits_in_parts(model, ids, [1] * 23), network(ids)
    assert torch.equal(at_once, apart)
    assert torch.equal(at_once, one_by_one)
    assert (at_once - whole).abs().max() < 2e-3 * whole.abs().max()


@torch.inference_mode()
def test_merged_rows_equal_separate_ones() -> None:
    model, ids = native_of(make("lm"), cache_type="f16"), random_ids(4, 31)
    separate: list[Any] = [model.step(ids[row : row + 1, : 3 + 7 * row], model.start())[1] for row in range(3)]
    merged: Any = model.merge([copy.copy(each) for each in separate])
    assert merged.pool.keys.dtype == torch.float16
    for place in range(40):
        tokens = (ids[:3, place % 31 : place % 31 + 1] + place) % VOCABULARY
        logits, merged = model.step(tokens, merged)
        for row in range(3):
            alone, separate[row] = model.step(tokens[row : row + 1], separate[row])
            assert torch.equal(logits[row], alone[0])


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_text_is_the_same_alone_and_among_others(temperature: float) -> None:
    engine = Engines(make("lm"), cache_type="f16")
    stepper: Any = engine.stepper()
    chosen = Settings(max_tokens=23, temperature=temperature, seed=3)
    prompts = [[7, 5], [11, 2], [3, 13]]
    together = generate(stepper, stepper.start(), Prompts(prompts), chosen)
    for row, prompt in enumerate(prompts):
        [[alone]] = generate(stepper, stepper.start(), Prompts([prompt], row_seeds=[row]), chosen)
        assert alone.ids == together[row][0].ids


def test_keys_and_values_take_half_the_memory() -> None:
    network = make("lm")
    half, whole = (native_of(network, cache_type=each).start().pool for each in ("f16", "f32"))
    assert whole.keys.nbytes == 2 * half.keys.nbytes
    assert whole.values.nbytes == 2 * half.values.nbytes
    stepper: Any = Engines(network, cache_type="f16").stepper()
    assert stepper.vector_bytes(13) == 26
    assert native_of(network).vector_bytes(13) == 52


def test_where_there_is_no_float16_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^cache_type=f16 is for language models; leave it out$"):
        Engines(make("translate"), cache_type="f16")
    with pytest.raises(ConfigError, match=r"^cache_type=f16 needs the engine auto or compiled, not torch$"):
        Engines(make("lm"), "torch", cache_type="f16")
    engines = Engines(make("lm", "model.score=additive"), cache_type="f16")
    with pytest.raises(EngineError, match=r"this model: a custom attention score .*; leave out cache_type=f16$"):
        engines.stepper()
