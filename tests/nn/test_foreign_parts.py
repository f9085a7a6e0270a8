"""The parts that other people's models have, each against its equation."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.look.probes import capture
from clearhead.models import build
from clearhead.models.config import ModelConfig
from clearhead.nn import (
    POSITIONS,
    CappedScore,
    DotScore,
    Encoder,
    Mask,
    MultiHeadAttention,
    ParallelBlock,
    PositionSizes,
    PreNorm,
    RMSNorm,
    Rotary,
    SegmentEmbedding,
    SoftCap,
    UnitLength,
    scaled_dot,
)

B, T, DIM, HEADS = 2, 7, 15, 3


def test_a_segment_is_the_number_of_separators_before_a_token() -> None:
    part = SegmentEmbedding(2, DIM, separator=9)
    ids = torch.tensor([[4, 9, 5, 9, 6], [4, 5, 6, 7, 9]])
    added = part(ids, torch.zeros(2, 5, DIM))
    assert_close(added, part.table.weight[torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])])


def test_scores_with_a_scale_and_a_cap() -> None:
    q, k = torch.randn(B, HEADS, T, 5), torch.randn(B, HEADS, T, 5)
    assert_close(DotScore(0.3)(q, k), 0.3 * q @ k.transpose(-2, -1))
    capped = CappedScore(scaled_dot, 0.5)
    assert_close(capped(q, k), 0.5 * torch.tanh(scaled_dot(q, k) / 0.5))
    assert capped.equation == "s_j = C tanh(r_j / C),  r_j = q · k_j / √d_k"
    assert_close(SoftCap(2.0)(q), 2 * torch.tanh(q / 2))
    assert_close(UnitLength()(q).norm(dim=-1), torch.ones(B, HEADS, T))


def test_rotary_factors_slow_each_pair_down() -> None:
    part, x = Rotary(6, base=50.0, factors=[1.0, 2.0, 5.0], gain=1.5), torch.randn(1, 1, T, 6)
    position = torch.arange(T, dtype=torch.float64)[:, None]
    angle = position * 50.0 ** (-torch.arange(0, 6, 2) / 6) / torch.tensor([1.0, 2.0, 5.0])
    cos, sin = 1.5 * angle.cos().float(), 1.5 * angle.sin().float()
    left, right = x[..., :3], x[..., 3:]
    assert_close(part.rotate(x, 0), torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1))
    with pytest.raises(ShapeError, match="2 rotary factors do not fit the 3 pairs of 6 numbers"):
        Rotary(6, factors=[1.0, 2.0])


def test_a_part_of_a_head_is_rotated() -> None:
    sizes = PositionSizes(dim=DIM, heads=HEADS, key_dim=11, max_length=T, rotary_dim=4)
    part, x = POSITIONS["rotary"].in_heads(sizes), torch.randn(1, 1, T, 11)
    assert_close(part.rotate(x, 3)[..., :4], Rotary(4).rotate(x[..., :4], 3))
    assert torch.equal(part.rotate(x, 3)[..., 4:], x[..., 4:])
    assert part.native_form(T) is None


@pytest.mark.parametrize("dim", [10, 7])
def test_sines_side_by_side(dim: int) -> None:
    sizes = PositionSizes(dim=dim, heads=1, key_dim=dim, max_length=T)
    halves = POSITIONS["sinusoidal_halves"].at_input(sizes).encode(T)
    alternating = POSITIONS["sinusoidal"].at_input(sizes).encode(T)
    assert_close(halves, torch.cat((alternating[:, 0::2], alternating[:, 1::2]), dim=-1))


def test_sines_of_fairseq() -> None:
    part = POSITIONS["sinusoidal_fairseq"].at_input(PositionSizes(dim=10, heads=1, key_dim=10, max_length=T))
    speed = torch.exp(torch.arange(5) * -math.log(10000) / 4)
    angle = torch.arange(2, 2 + T)[:, None] * speed
    assert_close(part.encode(T), torch.cat((angle.sin(), angle.cos()), dim=-1), atol=1e-5, rtol=1e-5)
    assert_close(part.encode(3, start=4), part.encode(T)[4:])


def test_queries_and_keys_are_normalised_before_they_turn() -> None:
    part = MultiHeadAttention(DIM, HEADS, head_norm=RMSNorm, key_dim=4, value_dim=5, relative=Rotary(4))
    x = torch.randn(B, T, DIM)
    q, k = part.project(x, None, None, None)[:2]
    assert_close(q.norm(dim=-1), torch.full((B, HEADS, T), 2.0), atol=1e-3, rtol=0)  # √4: turning keeps it
    assert_close(k.norm(dim=-1), torch.full((B, HEADS, T), 2.0), atol=1e-3, rtol=0)


def test_queries_of_all_heads_are_normalised_together() -> None:
    part = MultiHeadAttention(DIM, HEADS, joint_norm=RMSNorm, key_dim=4, value_dim=5, relative=Rotary(4))
    x = torch.randn(B, T, DIM)
    q, k = part.project(x, None, None, None)[:2]
    for found in (q, k):
        assert_close((found**2).mean((1, 3)), torch.ones(B, T), atol=1e-3, rtol=0)
        assert (found.norm(dim=-1) - 2.0).abs().max() > 0.1


def test_a_layer_with_a_window_sees_less_than_its_mask() -> None:
    part = MultiHeadAttention(DIM, HEADS, window=3)
    x, same = torch.randn(B, T, DIM), Mask(causal=True, window=3)
    narrow = part(x, mask=Mask(causal=True))
    part.window = None
    assert_close(narrow, part(x, mask=same))


def test_biases_of_some_maps() -> None:
    part = MultiHeadAttention(DIM, HEADS, bias=True, output_bias=False)
    assert part.query.bias is not None
    assert part.output.bias is None


def test_a_parallel_block_reads_x_twice() -> None:
    block, x = ParallelBlock(DIM, HEADS, placement=PreNorm), torch.randn(B, T, DIM)
    attended = block.self_attention(block.residual1.norm(x))
    assert_close(block(x), x + attended + block.feed_forward(block.residual2.norm(x)))


def test_shared_layers_have_one_set_of_weights_and_are_seen_apart() -> None:
    config = ModelConfig(dim=DIM, heads=HEADS, layers=3, dropout=0.0, shared_layers=True)
    stack, one = build.encoder(config), build.encoder(ModelConfig(dim=DIM, heads=HEADS, layers=1))
    count = sum(weight.numel() for weight in stack.parameters())
    assert count == sum(weight.numel() for weight in one.parameters())
    assert isinstance(stack, Encoder)
    with capture(stack, "encoder.*.self.weights") as seen:
        stack(torch.randn(B, T, DIM))
    assert not torch.equal(seen["encoder.0.self.weights"], seen["encoder.1.self.weights"])


def test_each_block_has_its_window_and_its_base() -> None:
    config = ModelConfig(dim=18, heads=3, layers=3, positions="rotary", layer_windows=(2, None, 2), local_base=50.0)
    layers = [block.self_attention for block in build.encoder(config).blocks]
    assert [layer.window for layer in layers] == [2, None, 2]
    assert [layer.relative.waves.base for layer in layers] == [50.0, 10000.0, 50.0]
    with pytest.raises(ValueError, match="layer_windows has 2 entries for layers=3"):
        ModelConfig(dim=18, heads=3, layers=3, layer_windows=(2, None))


def test_the_width_of_token_vectors_and_their_norm() -> None:
    config = ModelConfig(dim=DIM, heads=HEADS, embedding_dim=4, embedding_norm=True, embedding_scale=3.0, dropout=0.0)
    part = build.TokenInput(config, 13)
    ids = torch.randint(13, (B, T))
    vectors = part.positions(3.0 * part.tokens.table.weight[ids])
    assert_close(part(ids), part.project(part.norm(vectors)))
    assert part(ids).shape == (B, T, DIM)
    assert not part.is_sum
