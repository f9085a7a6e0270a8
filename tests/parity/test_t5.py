"""T5: unscaled dot products, a learned bias for the distance that all layers share, RMSNorm, no biases elsewhere."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    FeedForward,
    Mask,
    MultiHeadAttention,
    NoPositions,
    PreNorm,
    RelativePositions,
    RMSNorm,
    SwiGLU,
    T5Relative,
    TokenEmbedding,
    dot,
)

from .copying import Pair, Table, within
from .setting import (
    HEAD_DIM,
    HEADS,
    INNER,
    LAYERS,
    LENGTHS,
    MEMORY_LENGTHS,
    MEMORY_REAL,
    VOCABULARY,
    S,
    T,
    Translator,
    added,
    sentences,
    tokens,
    translation,
)

DIM = 23  # not HEADS × HEAD_DIM: in T5 the size of a head is free
BUCKETS, LONGEST = 6, 7
EPS = 1e-4
FEED_FORWARDS = {"relu": FeedForward, "gated-silu": SwiGLU}

ATTENTION: Table = {
    "q": "query",
    "k": "key",
    "v": "value",
    "o": "output",
    "relative_attention_bias": "relative.table",
}
FEED_FORWARD: Table = {
    "DenseReluDense.wi": "feed_forward.inner",
    "DenseReluDense.wi_0": "feed_forward.gate",
    "DenseReluDense.wi_1": "feed_forward.inner",
    "DenseReluDense.wo": "feed_forward.outer",
}
ENCODER = (
    within("block.*.layer.0.SelfAttention", "blocks.*.self_attention", ATTENTION)
    | within("block.*.layer.1", "blocks.*", FEED_FORWARD)
    | {
        "block.*.layer.0.layer_norm": "blocks.*.residual1.norm",
        "block.*.layer.1.layer_norm": "blocks.*.residual2.norm",
        "final_layer_norm": "norm",
    }
)
DECODER = (
    within("block.*.layer.0.SelfAttention", "blocks.*.self_attention", ATTENTION)
    | within("block.*.layer.1.EncDecAttention", "blocks.*.cross_attention", ATTENTION)
    | within("block.*.layer.2", "blocks.*", FEED_FORWARD)
    | {
        "block.*.layer.0.layer_norm": "blocks.*.residual1.norm",
        "block.*.layer.1.layer_norm": "blocks.*.residual2.norm",
        "block.*.layer.2.layer_norm": "blocks.*.residual3.norm",
        "final_layer_norm": "norm",
    }
)
STACKS = within("encoder", "encoder", ENCODER) | within("decoder", "decoder", DECODER)
TRANSLATOR = STACKS | {"shared": "embedding.table"}


def config(transformers, written="eager", feed_forward="relu", is_decoder=False):
    return transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=DIM,
        d_kv=HEAD_DIM,
        d_ff=INNER,
        num_layers=LAYERS,
        num_decoder_layers=LAYERS + 1,
        num_heads=HEADS,
        relative_attention_num_buckets=BUCKETS,
        relative_attention_max_distance=LONGEST,
        feed_forward_proj=feed_forward,
        layer_norm_epsilon=EPS,
        is_decoder=is_decoder,
        attn_implementation=written,
    )


def their_attention(transformers, *, relative, is_decoder=False):
    module = transformers.models.t5.modeling_t5
    return module.T5Attention(config(transformers, is_decoder=is_decoder), relative, layer_idx=0)


def our_attention(relative: RelativePositions | None = None) -> MultiHeadAttention:
    return MultiHeadAttention(
        DIM, HEADS, key_dim=HEAD_DIM, value_dim=HEAD_DIM, score=dot, relative=relative, bias=False
    )


@pytest.mark.parametrize("mask", [Mask(), Mask(table=MEMORY_REAL)], ids=["open", "padding"])
def test_attention_of_the_encoder(transformers, kernel, mask):
    ours = our_attention(T5Relative(HEADS, BUCKETS, LONGEST, both_ways=True))
    pair = Pair(kernel(ours), their_attention(transformers, relative=True), ATTENTION)
    x = tokens(S, DIM)
    output, _, weights = pair.theirs(x, added(mask, S, S))
    pair.agree(ours(x, mask=mask), output, x)
    pair.agree(ours.weights(x, mask=mask), weights, x)


def test_attention_of_the_decoder(transformers, kernel):
    ours = our_attention(T5Relative(HEADS, BUCKETS, LONGEST, both_ways=False))
    pair = Pair(kernel(ours), their_attention(transformers, relative=True, is_decoder=True), ATTENTION)
    x, mask = tokens(S, DIM), Mask(causal=True)
    output, _, weights = pair.theirs(x, added(mask, S, S))
    pair.agree(ours(x, mask=mask), output, x)
    pair.agree(ours.weights(x, mask=mask), weights, x)


def test_cross_attention(transformers, kernel):
    ours = our_attention()
    pair = Pair(kernel(ours), their_attention(transformers, relative=False), ATTENTION)
    x, memory = tokens(T, DIM), tokens(S, DIM)
    output, _, weights = pair.theirs(x, added(Mask(table=MEMORY_REAL), T, S), memory)
    pair.agree(ours(x, memory, MEMORY_REAL), output, x, memory)
    pair.agree(ours.weights(x, memory, MEMORY_REAL), weights, x, memory)


# The last three have a distance so near to the edge of a bucket that it matters when the number is rounded down.
@pytest.mark.parametrize("both_ways", [True, False], ids=["both ways", "backward"])
@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (BUCKETS, LONGEST), (17, 27), (20, 1028), (38, 25)])
def test_bucket_of_every_distance(transformers, buckets, longest, both_ways):
    ahead = torch.arange(-2 * longest, 2 * longest + 1)
    module = transformers.models.t5.modeling_t5
    expected = module.T5Attention._relative_position_bucket(ahead, both_ways, buckets, longest)
    assert T5Relative(HEADS, buckets, longest, both_ways).bucket(ahead).tolist() == expected.tolist()


each_feed_forward = pytest.mark.parametrize("feed_forward", FEED_FORWARDS)


@each_feed_forward
def test_encoder(transformers, kernel, written, feed_forward):
    theirs = transformers.T5EncoderModel(config(transformers, written, feed_forward)).encoder
    theirs.embed_tokens = nn.Identity()  # what is embedded already is given
    pair = Pair(kernel(our_encoder(feed_forward)), theirs, ENCODER)
    x = tokens(S, DIM)
    expected = theirs(inputs_embeds=x, attention_mask=MEMORY_REAL.squeeze(1)).last_hidden_state
    pair.agree(pair.ours(x, MEMORY_REAL), expected, x)


@each_feed_forward
def test_translator(transformers, kernel, written, feed_forward):
    theirs = transformers.T5Model(config(transformers, written, feed_forward))
    pair = Pair(kernel(our_translator(feed_forward)), theirs, TRANSLATOR)
    source, target = sentences(MEMORY_LENGTHS, S), sentences(LENGTHS, T)
    pair.agree(pair.ours(source, target), translation(theirs, source, target))


def our_parts(feed_forward: str, relative: T5Relative) -> dict[str, object]:
    return {
        "attention": our_attention(relative),
        "feed_forward": FEED_FORWARDS[feed_forward](DIM, INNER, bias=False),
        "norm": partial(RMSNorm, eps=EPS),
        "placement": PreNorm,
    }


def our_encoder(feed_forward: str) -> Encoder:
    relative = T5Relative(HEADS, BUCKETS, LONGEST, both_ways=True)  # one for all layers
    blocks = [EncoderBlock(DIM, HEADS, **our_parts(feed_forward, relative)) for _ in range(LAYERS)]
    return Encoder(blocks, norm=RMSNorm(DIM, EPS))


def our_decoder(feed_forward: str) -> Decoder:
    relative = T5Relative(HEADS, BUCKETS, LONGEST, both_ways=False)
    blocks = [
        DecoderBlock(DIM, HEADS, cross_attention=our_attention(), **our_parts(feed_forward, relative))
        for _ in range(LAYERS + 1)
    ]
    return Decoder(blocks, norm=RMSNorm(DIM, EPS))


def our_translator(feed_forward: str) -> Translator:
    embedding = TokenEmbedding(VOCABULARY, DIM)
    return Translator(embedding, NoPositions(), our_encoder(feed_forward), our_decoder(feed_forward))
