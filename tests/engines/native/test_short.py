"""Native attention of short sequences is the equation, in value and gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from clearhead.engines.native.library import VARIANTS, load_library
from clearhead.engines.native.short import ShortFused, _check, short_attention
from clearhead.errors import ConfigError
from clearhead.nn import (
    Encoder,
    EncoderBlock,
    Explicit,
    Fused,
    Mask,
    MultiHeadAttention,
    RelativePositions,
    causal_mask,
)
from clearhead.nn.positions import Rotary, T5Relative

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")


@pytest.fixture(params=VARIANTS, autouse=True, scope="module")
def variant(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEARHEAD_CPU", request.param)
        try:
            load_library()
        except ConfigError as problem:
            pytest.skip(str(problem))
        yield request.param


def vectors(seed: int, rows: int, heads: int, tokens: int, size: int) -> Tensor:
    """(B, H, T, size) as a layer splits them: the heads of a token lie side by side."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, tokens, heads, size, generator=generator).transpose(1, 2).requires_grad_()


def kernel(**options) -> ShortFused:
    library = load_library()
    assert library is not None
    return ShortFused(Fused(**options), library, 128)


def both(q: Tensor, k: Tensor, v: Tensor, mask: Mask, offset: int = 0) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradients by native code, and by the equation in float64."""
    upstream = torch.randn(*q.shape[:3], v.size(-1), generator=torch.Generator().manual_seed(9))
    out = kernel()(q, k, v, mask, offset, None)
    assert out.grad_fn is not None
    assert "ShortAttention" in type(out.grad_fn).__name__
    precise = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = Explicit()(*precise, mask, offset, None)
    found = [out, *torch.autograd.grad(out, (q, k, v), upstream)]
    return found, [wanted, *torch.autograd.grad(wanted, precise, upstream.double())]


def assert_equal(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


@given(
    st.integers(0, 99),
    st.integers(1, 3),
    st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]),
    st.integers(1, 41),
    st.integers(1, 41),
    st.integers(1, 37),
    st.integers(1, 37),
    st.sampled_from(["all", "padding", "causal", "window", "own"]),
)
def test_it_is_the_equation(seed, rows, heads, queries, keys, key_dim, value_dim, kind):
    q = vectors(seed, rows, heads[0], queries, key_dim)
    k, v = vectors(seed + 1, rows, heads[1], keys, key_dim), vectors(seed + 2, rows, heads[1], keys, value_dim)
    generator = torch.Generator().manual_seed(seed)
    masks = {
        "all": Mask(),
        "padding": Mask(table=torch.rand(rows, 1, keys, generator=generator) < 0.7),
        "causal": Mask(causal=True),
        "window": Mask(causal=True, window=3),
        "own": Mask(table=torch.rand(rows, queries, keys, generator=generator) < 0.5),
    }
    assert_equal(*both(q, k, v, masks[kind], offset=2 if kind == "window" else 0))


@pytest.mark.parametrize("tokens", [1, 64, 127, 128])
def test_up_to_the_longest(tokens):
    q, k, v = (vectors(seed, 2, 3, tokens, 64) for seed in range(3))
    assert_equal(*both(q, k, v, Mask(causal=True)))


def test_a_query_that_sees_nothing_gets_zeros_and_gives_no_gradient():
    q, k, v = vectors(1, 2, 2, 5, 7), vectors(2, 2, 2, 3, 7), vectors(3, 2, 2, 3, 11)
    table = torch.ones(2, 5, 3, dtype=torch.bool)
    table[1, 2] = False
    found, wanted = both(q, k, v, Mask(table=table))
    assert_equal(found, wanted)
    assert found[0][1, :, 2].eq(0).all()
    assert found[1][1, :, 2].eq(0).all()


def test_large_scores_and_numbers_that_are_none():
    q, k, v = (vectors(seed, 1, 2, 7, 5).detach() for seed in range(3))
    assert_equal(*both(*(x.requires_grad_() for x in (300 * q, 300 * k, v)), Mask()))
    out = kernel()(q.new_full(q.shape, torch.nan), k, v, Mask(), 0, None)
    assert out.isnan().all()  # training notices it


def test_any_layout_of_its_inputs():
    q, k, v = vectors(1, 2, 3, 5, 8), vectors(2, 2, 3, 7, 8), vectors(3, 2, 3, 7, 8)
    wanted = kernel()(q, k, v, Mask(), 0, None)
    turned = [x.detach().transpose(2, 3).contiguous().transpose(2, 3).requires_grad_() for x in (q, k, v)]
    assert turned[0].stride(-1) != 1
    found = kernel()(*turned, Mask(), 0, None)
    assert_close(found, wanted, rtol=0, atol=0)
    expected = torch.autograd.grad(wanted.sum(), (q, k, v))  # the gradient of a sum has no stride
    assert_close(torch.autograd.grad(found.sum(), turned), expected, rtol=0, atol=0)


def layers(relative: RelativePositions | None = None, **options) -> Encoder:
    torch.manual_seed(4)
    attention = [MultiHeadAttention(24, 3, relative=relative, **options) for _ in range(2)]
    return Encoder([EncoderBlock(24, 3, attention=each) for each in attention])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stack_computes_the_same_while_it_is_open(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model, x = layers(Rotary(8)), torch.randn(5, 17, 24, generator=torch.Generator().manual_seed(5))
    wanted = model(x, mask=Mask(causal=True))
    names = list(model.state_dict())
    with short_attention(model):
        assert [type(block.self_attention.kernel) for block in model.blocks] == [ShortFused] * 2
        assert model.blocks[0].self_attention.kernel.longest == 64 // threads**2
        assert list(model.state_dict()) == names
        assert_close(model(x, mask=Mask(causal=True)), wanted, rtol=1e-5, atol=1e-6)
    assert [type(block.self_attention.kernel) for block in model.blocks] == [Fused] * 2


def test_what_native_code_does_not_compute_is_left_to_torch():
    q, k, v = (torch.randn(1, 2, 5, 8, requires_grad=True) for _ in range(3))

    def is_native(kernel: ShortFused, *inputs: Tensor, bias=None) -> bool:
        return "ShortAttention" in type(kernel(*inputs, Mask(), 0, bias).grad_fn).__name__

    assert is_native(kernel(), q, k, v)
    assert is_native(kernel(dropout=0.5).eval(), q, k, v)
    assert not is_native(kernel(dropout=0.5), q, k, v)
    assert not is_native(kernel(), *(x.double() for x in (q, k, v)))
    assert not is_native(kernel(), q, k, v, bias=T5Relative(2).bias)
    long = torch.randn(1, 2, 129, 8, requires_grad=True)
    assert not is_native(kernel(), long, k, v)
    assert not is_native(kernel(), q, long, long)


def test_layers_without_the_fused_kernel_and_other_machines_stay_as_they_are(monkeypatch):
    model = layers(score=lambda q, k: torch.tanh(q @ k.mT))
    with short_attention(model):
        assert all(type(block.self_attention.kernel) is Explicit for block in model.blocks)
    monkeypatch.setattr("clearhead.engines.native.short.load_library", lambda: None)
    with short_attention(layers()) as nothing:
        assert nothing is None
    model = layers()
    with short_attention(model):
        assert all(type(block.self_attention.kernel) is Fused for block in model.blocks)


def test_memory_that_runs_out_is_an_error():
    with pytest.raises(MemoryError, match=r"^out of memory in the attention of a batch; lower data\.batch_tokens$"):
        _check(1)


def test_a_causal_table_is_the_causal_mask():
    q, k, v = (vectors(seed, 2, 2, 19, 8) for seed in range(3))
    as_rule = kernel()(q, k, v, Mask(causal=True), 0, None)
    assert_close(kernel()(q, k, v, Mask(table=causal_mask(19)), 0, None), as_rule, rtol=0, atol=0)
