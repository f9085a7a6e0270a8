"""What holds for every attention: fused = explicit, rows sum to 1, nothing leaks through a mask, nothing is NaN.

B batch, H heads, G key-value heads, T queries, S keys, D key size, V value size
"""

import importlib
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from clearhead.nn import (
    Alibi,
    Explicit,
    Fused,
    Mask,
    MultiHeadAttention,
    T5Relative,
    attention,
    causal_mask,
    dot,
    fused_attention,
    length_mask,
    pick_one,
    softmax,
    window_mask,
)

attention_module = importlib.import_module("clearhead.nn.attention")  # `clearhead.nn.attention` is the function

MASKS = ("none", "causal", "window", "causal window", "padding", "table", "causal padding", "window table", "queries")
BIASES = ("no bias", "alibi", "t5")


@dataclass(frozen=True)
class Sizes:
    batch: int
    groups: int  # heads that share one key-value head
    kv_heads: int
    queries: int
    keys: int
    key_dim: int
    value_dim: int
    offset: int
    window: int
    rows_at_once: int | None  # None: as the code chooses
    seed: int

    @property
    def heads(self) -> int:
        return self.groups * self.kv_heads


sizes = st.builds(
    Sizes,
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    queries=st.integers(1, 7),
    keys=st.integers(1, 11),
    key_dim=st.integers(1, 5),
    value_dim=st.integers(1, 5),
    offset=st.integers(-3, 9),
    window=st.integers(1, 4),
    rows_at_once=st.sampled_from([None, 1, 2, 3]),
    seed=st.integers(0, 2**31),
)


def tensors(size: Sizes, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    torch.default_generator.manual_seed(size.seed)
    q = torch.randn(size.batch, size.heads, size.queries, size.key_dim, dtype=dtype)
    k = torch.randn(size.batch, size.kv_heads, size.keys, size.key_dim, dtype=dtype)
    v = torch.randn(size.batch, size.kv_heads, size.keys, size.value_dim, dtype=dtype)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def mask_of(kind: str, size: Sizes) -> Mask:
    """The mask as a rule, with random tables that leave some rows with nothing to see."""
    mask = Mask(causal="causal" in kind, window=size.window if "window" in kind else None)
    if "padding" in kind:
        mask = mask & length_mask(torch.randint(0, size.keys + 1, (size.batch,)), size.keys)
    if "table" in kind:
        mask = mask & (torch.rand(size.batch, size.queries, size.keys) > 0.4)
    if "queries" in kind:  # a column that hides some queries altogether
        mask = mask & Mask(window=size.window) & (torch.rand(size.batch, size.queries, 1) > 0.4)
    return mask


def written_out(mask: Mask, size: Sizes) -> Tensor:
    """(B, 1, T, S), cell by cell: query i stands at key i + offset."""
    table = torch.ones(size.batch, size.queries, size.keys, dtype=torch.bool)
    table &= True if mask.table is None else mask.table
    for i in range(size.queries):
        for j in range(size.keys):
            behind = i + size.offset - j
            if (mask.causal and behind < 0) or (mask.window is not None and abs(behind) >= mask.window):
                table[:, i, j] = False
    return table.unsqueeze(1)


def bias_of(kind: str, heads: int) -> Alibi | T5Relative | None:
    if kind == "t5":
        relative = T5Relative(heads, buckets=8, longest=16)
        torch.nn.init.normal_(relative.table.weight)
        return relative
    return Alibi(heads) if kind == "alibi" else None


def added_to_scores(relative: Alibi | T5Relative | None, size: Sizes) -> Tensor | None:
    """(H, T, S), number by number."""
    if relative is None:
        return None
    rows = [
        torch.cat([relative.bias(torch.tensor([i + size.offset]), torch.tensor([j])) for j in range(size.keys)], dim=2)
        for i in range(size.queries)
    ]
    return torch.cat(rows, dim=1)


def in_chunks(size: Sizes, call) -> Tensor:
    """The call with the fused path cut into spans of a few queries."""
    with pytest.MonkeyPatch.context() as patch:
        if size.rows_at_once is not None:
            patch.setattr(attention_module, "_rows_per_table", lambda *_: size.rows_at_once)
        return call()


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("bias", BIASES)
@settings(max_examples=25)
@given(size=sizes)
def test_fused_equals_explicit_equals_equation(kind, bias, size):
    q, k, v = tensors(size)
    mask, relative = mask_of(kind, size), bias_of(bias, size.heads)
    number = relative.bias if relative else None
    inputs = (q, k, v, relative.table.weight) if bias == "t5" else (q, k, v)
    fused = in_chunks(size, lambda: Fused()(q, k, v, mask, size.offset, number))
    explicit = Explicit()(q, k, v, mask, size.offset, number)
    shared_k, shared_v = (x.repeat_interleave(size.groups, dim=1) for x in (k, v))
    equation, _ = attention(q, shared_k, shared_v, written_out(mask, size), bias=added_to_scores(relative, size))
    upstream = torch.randn_like(equation)
    expected = torch.autograd.grad(equation, inputs, upstream)
    for output in (fused, explicit):
        assert_close(output, equation, atol=1e-5, rtol=1e-5)
        gradients = torch.autograd.grad(output, inputs, upstream, materialize_grads=True)
        assert_close(gradients, expected, atol=1e-5, rtol=1e-5)


@given(size=sizes, kind=st.sampled_from(MASKS))
def test_fused_knows_the_unscaled_dot_product(size, kind):
    q, k, v = tensors(size, torch.float64)
    mask = mask_of(kind, size)
    fused, explicit = (part(q, k, v, mask, size.offset, None) for part in (Fused(dot), Explicit(dot)))
    assert_close(fused, explicit)


@given(size=sizes, kind=st.sampled_from(MASKS), bias=st.sampled_from(BIASES))
def test_rows_of_weights_sum_to_one_or_are_zero(size, kind, bias):
    q, k, _ = tensors(size, torch.float64)
    mask, relative = mask_of(kind, size), bias_of(bias, size.heads)
    weights = Explicit().weights(q, k, mask, size.offset, relative.bias if relative else None)
    visible = written_out(mask, size).expand_as(weights)
    assert weights[~visible].eq(0).all()
    assert weights[visible].gt(0).all()
    assert_close(weights.sum(-1), visible.any(-1).double())


@given(size=sizes, kind=st.sampled_from(MASKS))
def test_hard_weights_are_one_visible_key_or_none(size, kind):
    q, k, _ = tensors(size, torch.float64)
    mask = mask_of(kind, size)
    weights = Explicit(normalize=pick_one).weights(q, k, mask, size.offset)
    visible = written_out(mask, size).expand_as(weights)
    assert (weights.eq(0) | weights.eq(1)).all()
    assert weights[~visible].eq(0).all()
    assert_close(weights.sum(-1), visible.any(-1).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", BIASES)
@settings(max_examples=15)
@given(size=sizes)
def test_nothing_to_see_gives_zeros_and_finite_gradients(dtype, bias, size):
    q, k, v = tensors(size, dtype)
    table = torch.rand(size.batch, size.queries, size.keys) > 0.3
    table[:, size.queries // 2] = False
    table[0] = False
    relative = bias_of(bias, size.heads)
    number = relative.bias if relative else None
    fused = in_chunks(size, lambda: fused_attention(q, k, v, table, bias=number))
    for output in (fused, Explicit()(q, k, v, Mask.of(table), 0, number)):
        assert output.isfinite().all()
        assert output[:, :, size.queries // 2].eq(0).all()
        assert output[0].eq(0).all()
        of_query, of_key, of_value = torch.autograd.grad(output.square().sum() + output.sum(), (q, k, v))
        assert all(gradient.isfinite().all() for gradient in (of_query, of_key, of_value))
        assert of_query[:, :, size.queries // 2].eq(0).all()
        assert of_key[0].eq(0).all()
        assert of_value[0].eq(0).all()


@given(length=st.integers(1, 23), window=st.integers(1, 25), causal=st.booleans(), seed=st.integers(0, 999))
def test_window_attention_is_dense_attention_with_a_window_mask(length, window, causal, seed):
    torch.default_generator.manual_seed(seed)
    q, k, v = (torch.randn(2, 3, length, 5, dtype=torch.float64) for _ in range(3))
    dense = window_mask(length, window)
    dense = dense & causal_mask(length) if causal else dense
    output = fused_attention(q, k, v, Mask(causal=causal, window=window))
    assert_close(output, attention(q, k, v, dense)[0])


@given(size=sizes, kind=st.sampled_from(MASKS))
def test_rows_of_a_batch_do_not_touch(size, kind):
    torch.default_generator.manual_seed(size.seed)
    layer = MultiHeadAttention(6, 3, memory_dim=5).double()
    x = torch.randn(size.batch, size.queries, 6, dtype=torch.float64)
    memory = torch.randn(size.batch, size.keys, 5, dtype=torch.float64)
    mask = mask_of(kind, size)
    together = layer(x, memory, mask=mask)
    for row in range(size.batch):
        table = None if mask.table is None else mask.table[row : row + 1]
        alone = layer(x[row : row + 1], memory[row : row + 1], mask=Mask(mask.causal, mask.window, table))
        assert_close(together[row : row + 1], alone)


@given(size=sizes)
def test_what_is_masked_has_no_influence(size):
    q, k, v = tensors(size, torch.float64)
    table = torch.rand(size.keys) > 0.4
    mask = table.expand(size.batch, 1, size.keys)
    hidden = (~table)[:, None]
    noisy_k, noisy_v = torch.where(hidden, 1e4, k), torch.where(hidden, -1e4, v)
    assert_close(fused_attention(q, noisy_k, noisy_v, mask), fused_attention(q, k, v, mask), rtol=0, atol=1e-12)
    explicit = Explicit()
    clean, noisy = explicit(q, k, v, Mask.of(mask), 0, None), explicit(q, noisy_k, noisy_v, Mask.of(mask), 0, None)
    assert_close(noisy, clean, rtol=0, atol=1e-12)


@given(rows=st.integers(1, 5), columns=st.integers(1, 7), seed=st.integers(0, 999))
def test_softmax_with_a_mask_is_softmax_over_what_is_visible(rows, columns, seed):
    torch.default_generator.manual_seed(seed)
    scores, mask = 30 * torch.randn(rows, columns, dtype=torch.float64), torch.rand(rows, columns) > 0.5
    weights = softmax(scores, mask)
    for i in range(rows):
        expected = torch.zeros(columns, dtype=torch.float64)
        expected[mask[i]] = scores[i, mask[i]].softmax(-1)
        assert_close(weights[i], expected)


@given(size=sizes, factor=st.floats(-50, 50))
def test_weights_do_not_change_when_all_scores_move_together(size, factor):
    q, k, _ = tensors(size, torch.float64)
    scores = dot(q, k.repeat_interleave(size.groups, dim=1))
    assert_close(softmax(scores + factor), softmax(scores))
