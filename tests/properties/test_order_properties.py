"""What holds for every position scheme: causality, padding invariance, and order that is there or not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from clearhead.nn import LearnedPositions, Mask, Rotary, SinusoidalPositions, causal_mask, length_mask

from .small_stacks import LONGEST, SCHEMES, Model, assert_same, sizes, tokens

CAUSAL = {
    "rule": lambda _: Mask(causal=True),
    "table": causal_mask,
    "window": lambda _: Mask(causal=True, window=3),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=15)
@given(size=sizes(shortest=2), form=st.sampled_from(sorted(CAUSAL)), data=st.data())
def test_a_later_token_never_changes_an_earlier_output(scheme, size, form, data):
    model = Model(scheme, size)
    mask = CAUSAL[form](size.length)
    first = data.draw(st.integers(1, size.length - 1))  # everything from here on is changed
    x = tokens(size)
    changed = torch.cat([x[:, :first], tokens(size, size.length - first)], dim=1)
    before, after = model(x, mask=mask), model(changed, mask=mask)
    assert_same(after[:, :first], before[:, :first])
    assert (after - before)[:, first:].abs().amax(-1).gt(1e-7).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=15)
@given(size=sizes(shortest=2), data=st.data())
def test_decoder_is_causal_and_its_gradients_too(scheme, size, data):
    model = Model(scheme, size, decoder=True)
    first = data.draw(st.integers(1, size.length - 1))
    x, memory = tokens(size).requires_grad_(), tokens(size, size.memory).requires_grad_()
    output = model(x, memory)
    of_tokens, of_memory = torch.autograd.grad(output[:, :first].square().sum(), (x, memory))
    assert of_tokens[:, first:].eq(0).all()
    assert of_tokens[:, :first].abs().amax(-1).gt(0).all()
    assert of_memory.abs().amax(-1).gt(0).all()  # the memory is seen from everywhere


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=15)
@given(size=sizes(), causal=st.booleans(), data=st.data())
def test_padding_changes_nothing(scheme, size, causal, data):
    model = Model(scheme, size)
    lengths = torch.tensor([data.draw(st.integers(1, size.length)) for _ in range(size.batch)])
    x = tokens(size) * 3
    mask = Mask(causal=causal) & length_mask(lengths, size.length)
    padded = model(x, mask=mask)
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length], mask=Mask(causal=causal))
        assert_same(padded[row, :length], alone[0])


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=15)
@given(size=sizes(), data=st.data())
def test_padding_changes_nothing_in_a_decoder(scheme, size, data):
    model = Model(scheme, size, decoder=True)
    lengths = torch.tensor([data.draw(st.integers(1, size.length)) for _ in range(size.batch)])
    sources = torch.tensor([data.draw(st.integers(1, size.memory)) for _ in range(size.batch)])
    x, memory = tokens(size), tokens(size, size.memory) * 3
    own = Mask(causal=True) & length_mask(lengths, size.length)
    padded = model(x, memory, mask=own, memory_mask=length_mask(sources, size.memory))
    for row, (length, source) in enumerate(zip(lengths.tolist(), sources.tolist(), strict=True)):
        alone = model(x[row : row + 1, :length], memory[row : row + 1, :source])
        assert_same(padded[row, :length], alone[0])


@given(size=sizes(), data=st.data())
def test_without_positions_order_does_not_matter(size, data):
    model = Model("none", size)
    order = torch.tensor(data.draw(st.permutations(range(size.length))))
    x = tokens(size)
    assert_same(model(x[:, order]), model(x)[:, order])


@given(size=sizes(), data=st.data())
def test_the_order_of_the_memory_does_not_matter(size, data):
    model = Model("rotary", size, decoder=True)
    order = torch.tensor(data.draw(st.permutations(range(size.memory))))
    x, memory = tokens(size), tokens(size, size.memory)
    assert_same(model(x, memory[:, order]), model(x, memory))


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "none"])
@settings(max_examples=15)
@given(size=sizes(shortest=3))
def test_with_positions_order_matters(scheme, size):
    model = Model(scheme, size)
    order = torch.tensor([1, 0, *range(2, size.length)])  # not a reversal, which keeps every distance
    x = tokens(size)
    assert (model(x[:, order]) - model(x)[:, order]).abs().max() > 1e-7


@pytest.mark.parametrize("scheme", ["none", "rotary", "alibi", "t5"])
@settings(max_examples=15)
@given(size=sizes(shortest=2), shift=st.integers(1, 9))
def test_inside_the_heads_only_the_distance_counts(scheme, size, shift):
    """Tokens behind `shift` invisible ones get the vectors they get alone."""
    model = Model(scheme, size)
    x, before = tokens(size), tokens(size, shift)
    visible = torch.arange(shift + size.length) >= shift
    moved = model(torch.cat([before, x], dim=1), mask=visible.expand(1, -1))[:, shift:]
    assert_close(moved, model(x), rtol=0, atol=1e-6)  # the waves' table began as float32


@pytest.mark.parametrize("make", [SinusoidalPositions, lambda dim: LearnedPositions(dim, LONGEST)])
@given(starts=st.lists(st.integers(0, 9), min_size=1, max_size=5), length=st.integers(1, 7), dim=st.integers(1, 8))
def test_a_start_for_each_row(make, starts, length, dim):
    torch.default_generator.manual_seed(0)
    positions, x = make(dim), torch.randn(len(starts), length, dim)
    by_row = torch.cat([positions(x[row : row + 1], start) for row, start in enumerate(starts)])
    assert_close(positions(x, torch.tensor(starts)), by_row)


@given(starts=st.lists(st.integers(0, 300), min_size=1, max_size=5), length=st.integers(1, 7), half=st.integers(1, 4))
def test_a_start_for_each_row_of_rotary(starts, length, half):
    torch.default_generator.manual_seed(0)
    rotary, x = Rotary(2 * half), torch.randn(len(starts), 3, length, 2 * half)
    by_row = torch.cat([rotary.rotate(x[row : row + 1], start) for row, start in enumerate(starts)])
    assert_close(rotary.rotate(x, torch.tensor(starts)), by_row)


@given(size=sizes(), scheme=st.sampled_from(sorted(SCHEMES)), decoder=st.booleans())
def test_rows_of_a_batch_do_not_touch(size, scheme, decoder):
    model = Model(scheme, size, decoder)
    x, memory = tokens(size), tokens(size, size.memory)
    inputs = (x, memory) if decoder else (x,)
    together = model(*inputs)
    for row in range(size.batch):
        alone = model(*(part[row : row + 1] for part in inputs))
        assert_same(together[row : row + 1], alone)
