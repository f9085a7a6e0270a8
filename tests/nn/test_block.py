import pytest
import torch
from torch import nn
from torch.testing import assert_close

from clearhead.nn import (
    BatchNorm,
    Decoder,
    DecoderBlock,
    DecoderCache,
    Encoder,
    EncoderBlock,
    FeedForward,
    FixedCache,
    GrowingCache,
    LayerNorm,
    Mask,
    MultiHeadAttention,
    OutputNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    SandwichNorm,
    SwiGLU,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def randomised(part: nn.Module) -> nn.Module:
    for parameter in part.parameters():
        nn.init.normal_(parameter, std=0.5)
    return part.double()


def double(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("placement", "equation"),
    [
        (PostNorm, lambda block, x, f: block.norm(x + f(x))),
        (PreNorm, lambda block, x, f: x + f(block.norm(x))),
        (OutputNorm, lambda block, x, f: x + block.norm(f(x))),
        (SandwichNorm, lambda block, x, f: x + block.outer_norm(f(block.norm(x)))),
    ],
)
@pytest.mark.parametrize("norm", [nn.LayerNorm, RMSNorm, BatchNorm])
def test_placement_of_the_norm(placement, equation, norm):
    block, x = randomised(placement(7, norm)), double(2, 5, 7)
    assert_close(block(x, torch.sin), equation(block, x, torch.sin))


@pytest.mark.parametrize("placement", [PostNorm, PreNorm, SandwichNorm])
def test_encoder_block_is_two_parts(placement):
    block, x = randomised(EncoderBlock(6, 3, placement=placement)), double(2, 5, 6)
    mask = Mask(causal=True)
    y = block.residual1(x, lambda z: block.self_attention(z, mask=mask))
    assert_close(block(x, mask=mask), block.residual2(y, block.feed_forward))


@pytest.mark.parametrize("placement", [PostNorm, PreNorm, SandwichNorm])
def test_decoder_block_is_three_parts(placement):
    block, x, memory = randomised(DecoderBlock(6, 3, placement=placement)), double(2, 5, 6), double(2, 7, 6)
    memory_mask = torch.rand(2, 1, 7) > 0.4
    y = block.residual1(x, lambda z: block.self_attention(z, mask=Mask(causal=True)))
    y = block.residual2(y, lambda z: block.cross_attention(z, memory, mask=memory_mask))
    assert_close(block(x, memory, memory_mask=memory_mask), block.residual3(y, block.feed_forward))


def test_decoder_block_takes_another_mask():
    block, x, memory = randomised(DecoderBlock(6, 3)), double(2, 5, 6), double(2, 7, 6)
    everything = block(x, memory, mask=Mask())
    assert (everything - block(x, memory))[:, 0].abs().max() > 1e-3


def test_parts_are_passed_in():
    attention, cross, feed_forward = MultiHeadAttention(6, 2), MultiHeadAttention(6, 1, memory_dim=5), SwiGLU(6, 7)
    block = DecoderBlock(6, 3, attention=attention, cross_attention=cross, feed_forward=feed_forward)
    assert block.self_attention is attention
    assert block.cross_attention is cross
    assert block.feed_forward is feed_forward
    assert block(torch.randn(2, 3, 6), torch.randn(2, 7, 5)).shape == (2, 3, 6)


ATTENTION = {f"{part}.{kind}" for part in ("query", "key", "value", "output") for kind in ("weight", "bias")}
FEED_FORWARD = {f"feed_forward.{part}.{kind}" for part in ("inner", "outer") for kind in ("weight", "bias")}


def norms(count: int) -> set[str]:
    return {f"residual{i + 1}.norm.{kind}" for i in range(count) for kind in ("weight", "bias")}


def test_parameter_names():
    encoder = {f"self_attention.{name}" for name in ATTENTION} | FEED_FORWARD
    assert set(EncoderBlock(6, 3).state_dict()) == encoder | norms(2)
    cross = {f"cross_attention.{name}" for name in ATTENTION}
    assert set(DecoderBlock(6, 3).state_dict()) == encoder | cross | norms(3)


def test_parameter_count():
    """4 (D² + D) for attention, 8 D² + 5 D for the feed-forward, 2 D for a norm."""
    dim = 6
    attention, feed_forward, norm = 4 * (dim**2 + dim), 8 * dim**2 + 5 * dim, 2 * dim
    assert sum(p.numel() for p in EncoderBlock(dim, 3).parameters()) == attention + feed_forward + 2 * norm
    assert sum(p.numel() for p in DecoderBlock(dim, 3).parameters()) == 2 * attention + feed_forward + 3 * norm


@pytest.mark.parametrize("placement", [PostNorm, PreNorm, SandwichNorm])
def test_dropout_only_in_training(placement):
    block, x, memory = DecoderBlock(6, 3, placement=placement, dropout=0.5), torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    assert (block(x, memory) - block(x, memory)).abs().max() > 1e-3
    plain = DecoderBlock(6, 3, placement=placement)
    plain.load_state_dict(block.state_dict())
    assert_close(block.eval()(x, memory), plain(x, memory))


@pytest.mark.parametrize("placement", [PreNorm, SandwichNorm])
def test_dropout_leaves_only_the_residual_path(placement):
    block, x = randomised(placement(7, dropout=1.0)), double(2, 5, 7)
    assert_close(block(x, torch.sin), x)


def test_the_caller_owns_the_cache():
    block, x, memory = DecoderBlock(6, 3), torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    cache = DecoderCache()
    block(x, memory, cache=cache)
    assert (cache.own.start, cache.own.keys.shape, cache.memory.keys.shape) == (5, (2, 3, 5, 2), (2, 3, 7, 2))
    assert not any("cache" in name for name, _ in block.named_buffers())


def test_feed_forward_of_another_size():
    block = EncoderBlock(6, 3, feed_forward=FeedForward(6, 11))
    assert block.feed_forward.inner.weight.shape == (11, 6)


def test_encoder_is_its_blocks_one_after_the_other():
    blocks, x, mask = [EncoderBlock(6, 3) for _ in range(3)], torch.randn(2, 5, 6), torch.rand(2, 5, 5) > 0.3
    y = x
    for block in blocks:
        y = block(y, mask=mask)
    assert_close(Encoder(blocks)(x, mask=mask), y)


def test_decoder_is_its_blocks_one_after_the_other():
    blocks, x, memory = [DecoderBlock(6, 3) for _ in range(3)], torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    masks = {"mask": Mask(causal=True, window=2), "memory_mask": torch.rand(2, 1, 7) > 0.3}
    y = x
    for block in blocks:
        y = block(y, memory, **masks)
    assert_close(Decoder(blocks)(x, memory, **masks), y)


def test_a_norm_closes_the_stack():
    blocks, norm, x = [EncoderBlock(6, 3, placement=PreNorm)], LayerNorm(6), torch.randn(2, 5, 6)
    nn.init.normal_(norm.weight)
    assert_close(Encoder(blocks, norm)(x), norm(blocks[0](x)))
    blocks, memory = [DecoderBlock(6, 3, placement=PreNorm)], torch.randn(2, 7, 6)
    assert_close(Decoder(blocks, norm)(x, memory), norm(blocks[0](x, memory)))


def test_parameter_names_count_the_blocks():
    block = EncoderBlock(6, 3).state_dict()
    names = set(Encoder([EncoderBlock(6, 3) for _ in range(2)], LayerNorm(6)).state_dict())
    assert names == {f"blocks.{i}.{name}" for i in (0, 1) for name in block} | {"norm.weight", "norm.bias"}


def test_one_cache_for_each_block():
    encoder = Encoder([EncoderBlock(6, 3) for _ in range(3)])
    caches = encoder.make_cache()
    assert [type(cache) for cache in caches] == [GrowingCache] * 3
    assert len({id(cache) for cache in caches}) == 3
    fixed = encoder.make_cache(lambda: FixedCache(11))
    assert [cache.length for cache in fixed] == [11] * 3
    decoder = Decoder([DecoderBlock(6, 3) for _ in range(2)])
    assert [type(cache) for cache in decoder.make_cache()] == [DecoderCache] * 2


def test_a_stack_wants_a_cache_for_every_block():
    encoder = Encoder([EncoderBlock(6, 3) for _ in range(3)])
    with pytest.raises(ValueError, match="2 caches were given to a stack of 3 blocks"):
        encoder(torch.randn(2, 5, 6), cache=encoder.make_cache()[:2])


def test_gradients_reach_every_parameter():
    """All but the biases of the keys, which add the same to every score of a query."""
    encoder, decoder = Encoder([EncoderBlock(6, 3) for _ in range(2)]), Decoder([DecoderBlock(6, 3) for _ in range(2)])
    decoder(torch.randn(2, 5, 6), encoder(torch.randn(2, 7, 6))).square().mul(torch.randn(2, 5, 6)).sum().backward()
    for name, parameter in (*encoder.named_parameters(), *decoder.named_parameters()):
        assert parameter.grad is not None, name
        assert name.endswith("key.bias") or parameter.grad.abs().max() > 1e-6, name
