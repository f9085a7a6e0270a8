"""Cache = no cache: for every position scheme and every kind of cache, in whatever steps the tokens arrive."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.nn import (
    Alibi,
    FixedCache,
    GrowingCache,
    Mask,
    MemoryCache,
    MultiHeadAttention,
    Rotary,
    T5Relative,
    WindowCache,
    length_mask,
)

from .small_stacks import SCHEMES, Model, Sizes, assert_same, sizes, tokens

WINDOW = 3
CACHES = {
    "growing": (GrowingCache, Mask(causal=True)),
    "growing, with a window": (GrowingCache, Mask(causal=True, window=WINDOW)),
    "fixed": (lambda: FixedCache(11), Mask(causal=True)),
    "fixed, with a window": (lambda: FixedCache(11), Mask(causal=True, window=WINDOW)),
    "window": (lambda: WindowCache(WINDOW), Mask(causal=True, window=WINDOW)),
}
every_scheme_and_cache = pytest.mark.parametrize(
    ("scheme", "kind"), [(scheme, kind) for scheme in SCHEMES for kind in CACHES]
)


def spans(data: st.DataObject, first: int, last: int) -> list[tuple[int, int]]:
    """first..last cut into steps at random places."""
    inner = data.draw(st.sets(st.integers(first + 1, last - 1))) if last - first > 1 else set()
    cuts = [first, *sorted(inner), last]
    return list(pairwise(cuts))


def step_by_step(model: Model, x: Tensor, *memory: Tensor, steps: list[tuple[int, int]], **named) -> Tensor:
    outputs = [model(x[:, first:last], *memory, start=first, **named) for first, last in steps]
    return torch.cat(outputs, dim=1)


@every_scheme_and_cache
@settings(max_examples=8)
@given(size=sizes(), data=st.data())
def test_encoder_with_cache_equals_without(scheme, kind, size, data):
    model, (make, mask) = Model(scheme, size), CACHES[kind]
    x, steps = tokens(size), spans(data, 0, size.length)
    cached = step_by_step(model, x, steps=steps, mask=mask, cache=model.stack.make_cache(make))
    assert_same(cached, model(x, mask=mask))


@every_scheme_and_cache
@settings(max_examples=8)
@given(size=sizes(), data=st.data())
def test_decoder_with_cache_equals_without(scheme, kind, size, data):
    model, (make, mask) = Model(scheme, size, decoder=True), CACHES[kind]
    x, memory, steps = tokens(size), tokens(size, size.memory), spans(data, 0, size.length)
    sources = torch.tensor([data.draw(st.integers(1, size.memory)) for _ in range(size.batch)])
    named = {"mask": mask, "memory_mask": length_mask(sources, size.memory)}
    cached = step_by_step(model, x, memory, steps=steps, cache=model.stack.make_cache(make), **named)
    assert_same(cached, model(x, memory, **named))


@every_scheme_and_cache
@settings(max_examples=8)
@given(size=sizes(), data=st.data())
def test_padded_rows_with_cache_equal_those_without(scheme, kind, size, data):
    model, x, (make, mask) = Model(scheme, size), tokens(size), CACHES[kind]
    lengths = torch.tensor([data.draw(st.integers(1, size.length)) for _ in range(size.batch)])
    visible, cache = length_mask(lengths, size.length), model.stack.make_cache(make)
    outputs = [
        model(x[:, first:last], start=first, mask=mask & visible[..., :last], cache=cache)
        for first, last in spans(data, 0, size.length)
    ]
    assert_same(torch.cat(outputs, dim=1), model(x, mask=mask & visible))


@pytest.mark.parametrize("relative", [Rotary(4), Alibi(2), T5Relative(2)], ids=lambda part: type(part).__name__)
def test_relative_positions_towards_the_memory_count_the_steps(relative):
    layer, x, memory = MultiHeadAttention(8, 2, relative=relative).double(), *torch.randn(2, 3, 5, 8).double()
    cache = MemoryCache()
    steps = [layer(x[:, first : first + 1], memory, cache=cache) for first in range(5)]
    assert_same(torch.cat(steps, dim=1), layer(x, memory))


def reordered(size: Sizes, data: st.DataObject) -> Tensor:
    """Rows as a beam search asks for them: some twice, some gone, more or fewer than before."""
    return torch.tensor(data.draw(st.lists(st.integers(0, size.batch - 1), min_size=1, max_size=5)))


@every_scheme_and_cache
@settings(max_examples=8)
@given(size=sizes(shortest=2), data=st.data())
def test_reordered_cache_goes_on_as_the_reordered_rows(scheme, kind, size, data):
    model, (make, mask) = Model(scheme, size), CACHES[kind]
    middle = data.draw(st.integers(1, size.length - 1))
    rows, cache, x = reordered(size, data), model.stack.make_cache(make), tokens(size)
    step_by_step(model, x, steps=spans(data, 0, middle), mask=mask, cache=cache)
    for layer in cache:
        layer.reorder(rows)
    x = torch.cat([x[rows, :middle], torch.randn_like(x[rows, middle:])], dim=1)
    cached = step_by_step(model, x, steps=spans(data, middle, size.length), mask=mask, cache=cache)
    assert_same(cached, model(x, mask=mask)[:, middle:])


@pytest.mark.parametrize("kind", CACHES)
@settings(max_examples=15)
@given(size=sizes(shortest=2), scheme=st.sampled_from(sorted(SCHEMES)), data=st.data())
def test_reordered_decoder_cache_takes_its_memory_along(kind, size, scheme, data):
    model, (make, mask) = Model(scheme, size, decoder=True), CACHES[kind]
    middle = data.draw(st.integers(1, size.length - 1))
    rows, cache = reordered(size, data), model.stack.make_cache(make)
    x, memory = tokens(size), tokens(size, size.memory)
    step_by_step(model, x, memory, steps=spans(data, 0, middle), mask=mask, cache=cache)
    for layer in cache:
        layer.reorder(rows)
    x, memory = torch.cat([x[rows, :middle], torch.randn_like(x[rows, middle:])], dim=1), memory[rows]
    steps = spans(data, middle, size.length)
    cached = step_by_step(model, x, torch.zeros_like(memory), steps=steps, mask=mask, cache=cache)  # not read again
    assert_same(cached, model(x, memory, mask=mask)[:, middle:])


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=10)
@given(size=sizes(), data=st.data())
def test_weights_with_cache_are_the_rows_of_those_without(scheme, size, data):
    layer, x = Model(scheme, size).stack.blocks[0].self_attention, tokens(size)
    whole, cache = layer.weights(x, mask=Mask(causal=True)), GrowingCache()
    for first, last in spans(data, 0, size.length):
        part = layer.weights(x[:, first:last], mask=Mask(causal=True), cache=cache)
        assert_same(part, whole[:, :, first:last, :last])
        assert whole[:, :, first:last, last:].eq(0).all()
