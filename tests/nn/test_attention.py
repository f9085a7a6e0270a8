import pytest
import torch
from torch import nn
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import (
    AdditiveScore,
    Alibi,
    CosineScore,
    Explicit,
    Fused,
    Mask,
    MultiHeadAttention,
    attention,
    causal_mask,
    cosine,
    dot,
    fused_attention,
    pick_one,
    scaled_dot,
    softmax,
)
from clearhead.nn.attention import split_heads


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 5)])
def test_attention_takes_any_leading_axes(lead):
    q, k, v = torch.randn(*lead, 7, 11), torch.randn(*lead, 13, 11), torch.randn(*lead, 13, 17)
    output, weights = attention(q, k, v)
    assert output.shape == (*lead, 7, 17)
    assert weights.shape == (*lead, 7, 13)
    assert_close(output, weights @ v)


def test_attention_adds_a_bias_before_the_softmax():
    q, k, v, bias = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 2), torch.randn(5, 7)
    _, weights = attention(q, k, v, bias=bias)
    assert_close(weights, torch.softmax(q @ k.T / 3**0.5 + bias, dim=-1))


def test_attention_weighs_as_it_is_told():
    q, k, v = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 2)
    output, weights = attention(q, k, v, normalize=lambda scores, _: torch.ones_like(scores) / 7)
    assert_close(weights, torch.full((5, 7), 1 / 7))
    assert_close(output, v.mean(0).expand(5, 2))


def test_pick_one_has_the_gradient_of_the_softmax():
    scores, upstream = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7)
    mask = torch.rand(5, 7) > 0.3
    (hard,) = torch.autograd.grad(pick_one(scores, mask), scores, upstream)
    (soft,) = torch.autograd.grad(softmax(scores, mask), scores, upstream)
    assert soft.abs().max() > 0
    assert_close(hard, soft)


def test_pick_one_never_picks_what_is_masked():
    scores = torch.tensor([[9.0, 1.0, 2.0], [9.0, 1.0, 2.0]])
    mask = torch.tensor([[False, True, True], [False, False, False]])
    assert_close(pick_one(scores, mask), torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))


def test_fused_attention_of_a_long_text_needs_no_whole_table():
    """A table of 701 × 709 with a bias for each of 37 heads is more than is written out at once."""
    q, k, v = torch.randn(1, 37, 701, 2), torch.randn(1, 37, 709, 2), torch.randn(1, 37, 709, 2)
    table, bias = torch.rand(1, 701, 709) > 0.5, Alibi(37).bias
    wanted = Explicit()(q, k, v, Mask.of(table), 5, bias)
    assert_close(fused_attention(q, k, v, table, bias=bias, offset=5), wanted, atol=1e-5, rtol=1e-5)


def test_fused_attention_takes_a_scale():
    q, k, v = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 2)
    wanted, _ = attention(q, k, v, score=lambda q, k: 0.3 * dot(q, k))
    assert_close(fused_attention(q, k, v, scale=0.3), wanted)


@pytest.mark.parametrize(
    ("score", "normalize", "kernel"),
    [
        (scaled_dot, softmax, Fused),
        (dot, softmax, Fused),
        (cosine, softmax, Explicit),
        (scaled_dot, pick_one, Explicit),
    ],
)
def test_the_kernel_follows_from_the_parts(score, normalize, kernel):
    layer = MultiHeadAttention(6, 2, score=score, normalize=normalize)
    assert type(layer.kernel) is kernel
    x = torch.randn(2, 5, 6)
    q, k, v = (part(x).unflatten(-1, (2, 3)).transpose(1, 2) for part in (layer.query, layer.key, layer.value))
    mixed, weights = attention(q, k, v, score=score, normalize=normalize)
    assert_close(layer(x), layer.output(mixed.transpose(1, 2).flatten(-2)))
    assert_close(layer.weights(x), weights)


def test_a_kernel_knows_its_explicit_form():
    explicit = Explicit(cosine)
    assert explicit.explicit() is explicit
    assert Fused(dot).explicit().score is dot


def test_parameters_of_multi_head_attention():
    layer = MultiHeadAttention(7, 6, kv_heads=2, key_dim=5, value_dim=3, memory_dim=11)
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes == {
        "query.weight": (30, 7),
        "query.bias": (30,),
        "key.weight": (10, 11),
        "key.bias": (10,),
        "value.weight": (6, 11),
        "value.bias": (6,),
        "output.weight": (7, 18),
        "output.bias": (7,),
    }
    assert layer(torch.randn(2, 13, 7), torch.randn(2, 17, 11)).shape == (2, 13, 7)
    assert layer.weights(torch.randn(2, 13, 7), torch.randn(2, 17, 11)).shape == (2, 6, 13, 17)


def test_without_bias_there_are_four_matrices():
    layer = MultiHeadAttention(6, 3, bias=False)
    names = {name for name, _ in layer.named_parameters()}
    assert names == {"query.weight", "key.weight", "value.weight", "output.weight"}


def test_a_score_with_parameters_is_part_of_the_layer():
    layer = MultiHeadAttention(6, 3, score=AdditiveScore(2, heads=3))
    names = {name for name, _ in layer.named_parameters()}
    assert {"kernel.score.query", "kernel.score.key", "kernel.score.weight"} < names
    layer = MultiHeadAttention(6, 3, score=CosineScore(heads=3))
    assert layer.kernel.score.sharpness.shape == (3, 1, 1)


@pytest.mark.parametrize("sizes", [{}, {"key_dim": 5}, {"value_dim": 5}])
def test_dim_must_be_divisible_by_heads(sizes):
    with pytest.raises(ShapeError, match=r"^dim=10 is not divisible by heads=3$"):
        MultiHeadAttention(10, 3, **sizes)


def test_dim_need_not_be_divisible_when_the_head_sizes_are_given():
    assert MultiHeadAttention(10, 3, key_dim=2, value_dim=5)(torch.randn(2, 7, 10)).shape == (2, 7, 10)


@pytest.mark.parametrize("kv_heads", [4, 12])
def test_heads_must_be_divisible_by_kv_heads(kv_heads):
    with pytest.raises(ShapeError, match=rf"^heads=6 is not divisible by kv_heads={kv_heads}$"):
        MultiHeadAttention(12, 6, kv_heads=kv_heads)


@pytest.mark.parametrize("score", [scaled_dot, cosine], ids=["fused", "explicit"])
def test_dropout_only_in_training(score):
    layer = MultiHeadAttention(12, 3, dropout=0.5, score=score)
    x = torch.randn(2, 7, 12)
    assert (layer(x) - layer(x)).abs().max() > 1e-3
    layer.eval()
    assert_close(layer(x), layer(x), rtol=0, atol=0)
    plain = MultiHeadAttention(12, 3, score=score)
    plain.load_state_dict(layer.state_dict())
    assert_close(layer(x), plain(x))


@pytest.mark.parametrize("kernel", [Fused, Explicit])
def test_dropout_keeps_the_average(kernel):
    q, k, v = torch.randn(2, 1, 5), torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    tries = kernel(dropout=0.3)(*(x.expand(4001, -1, -1, -1) for x in (q, k, v)), Mask(), 0, None)
    assert tries.std(0).min() > 0.1
    assert_close(tries.mean(0), attention(q, k, v)[0], atol=0.05, rtol=0)


def test_a_plain_table_and_a_rule_are_the_same_mask():
    layer, x = MultiHeadAttention(6, 3), torch.randn(2, 7, 6)
    assert_close(layer(x, mask=causal_mask(7)), layer(x, mask=Mask(causal=True)))
    assert_close(layer.weights(x, mask=causal_mask(7)), layer.weights(x, mask=Mask(causal=True)))


@pytest.mark.parametrize("sizes", [(2, 0), (0, 5)])
def test_texts_without_tokens_and_batches_without_texts_are_nothing(sizes):
    x = torch.randn(*sizes, 12)
    assert MultiHeadAttention(12, heads=3)(x).shape == x.shape
    assert split_heads(x, 3).shape == (sizes[0], 3, sizes[1], 4)


def test_weights_are_those_forward_uses():
    layer = MultiHeadAttention(6, 3, relative=Alibi(3))
    x, mask = torch.randn(2, 7, 6), Mask(causal=True, window=3)
    v = layer.value(x).unflatten(-1, (3, 2)).transpose(1, 2)
    mixed = layer.weights(x, mask=mask) @ v
    assert_close(layer(x, mask=mask), layer.output(mixed.transpose(1, 2).flatten(-2)))


def test_relative_positions_are_a_part_and_are_saved_only_if_learned():
    layer = MultiHeadAttention(6, 3, relative=Alibi(3))
    assert not any(name.startswith("relative") for name in layer.state_dict())
    assert isinstance(layer.relative, nn.Module)
