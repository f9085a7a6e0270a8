import pytest
import torch
from torch import nn
from torch.testing import assert_close

from clearhead.nn import (
    Decoder,
    DecoderBlock,
    DecoderCache,
    Encoder,
    EncoderBlock,
    FixedCache,
    GrowingCache,
    LayerNorm,
    Mask,
    PreNorm,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


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
