"""GPT-2: learned positions, pre-norm, GELU by tanh, and matrices kept transposed and fused."""

from __future__ import annotations

from functools import partial

import pytest
from torch.nn import functional as F

from clearhead.nn import (
    Encoder,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Mask,
    MultiHeadAttention,
    PreNorm,
    TokenEmbedding,
    padding_mask,
)

from .copying import Pair, Table, into, turned, within
from .setting import (
    DIM,
    HEADS,
    INNER,
    LAYERS,
    LENGTHS,
    MASKS,
    MEMORY_REAL,
    VOCABULARY,
    Body,
    S,
    T,
    added,
    sentences,
    tokens,
)

POSITIONS = 13
EPS = 1e-4
turn = partial(into, change=turned)

ATTENTION: Table = {"c_attn": turn("query", "key", "value"), "c_proj": turn("output")}
CROSS_ATTENTION: Table = {"q_attn": turn("query"), "c_attn": turn("key", "value"), "c_proj": turn("output")}
BLOCK = within("attn", "self_attention", ATTENTION) | {
    "ln_1": "residual1.norm",
    "ln_2": "residual2.norm",
    "mlp.c_fc": turn("feed_forward.inner"),
    "mlp.c_proj": turn("feed_forward.outer"),
}
BODY = within("h.*", "encoder.blocks.*", BLOCK) | {
    "wte": "embedding.table",
    "wpe": "positions.table",
    "ln_f": "encoder.norm",
}


def config(transformers, written="eager"):
    return transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=INNER,
        layer_norm_epsilon=EPS,
        attn_implementation=written,
    )


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention(transformers, kernel, mask):
    theirs = transformers.models.gpt2.modeling_gpt2.GPT2Attention(config(transformers))
    pair = Pair(kernel(MultiHeadAttention(DIM, HEADS)), theirs, ATTENTION)
    x = tokens()
    output, weights = theirs(x, attention_mask=added(mask, T, T))
    pair.agree(pair.ours(x, mask=mask), output, x)
    pair.agree(pair.ours.weights(x, mask=mask), weights, x)


def test_cross_attention(transformers, kernel):
    theirs = transformers.models.gpt2.modeling_gpt2.GPT2Attention(config(transformers), is_cross_attention=True)
    pair = Pair(kernel(MultiHeadAttention(DIM, HEADS)), theirs, CROSS_ATTENTION)
    x, memory = tokens(), tokens(S)
    hidden = added(Mask(table=MEMORY_REAL), T, S)
    output, weights = theirs(x, encoder_hidden_states=memory, encoder_attention_mask=hidden)
    pair.agree(pair.ours(x, memory, MEMORY_REAL), output, x, memory)
    pair.agree(pair.ours.weights(x, memory, MEMORY_REAL), weights, x, memory)


def test_body(transformers, kernel, written):
    pair = Pair(kernel(our_body()), transformers.GPT2Model(config(transformers, written)), BODY)
    ids = sentences(LENGTHS, T)
    expected = pair.theirs(ids, attention_mask=ids != 0).last_hidden_state
    pair.agree(pair.ours(ids, Mask(causal=True) & padding_mask(ids)), expected)


def test_body_without_padding(transformers, kernel, written):
    pair = Pair(kernel(our_body()), transformers.GPT2Model(config(transformers, written)), BODY)
    ids = sentences(LENGTHS, T)
    pair.agree(pair.ours(ids, Mask(causal=True)), pair.theirs(ids).last_hidden_state)


def our_body() -> Body:
    blocks = [our_block() for _ in range(LAYERS)]
    encoder = Encoder(blocks, norm=LayerNorm(DIM, EPS))
    return Body(TokenEmbedding(VOCABULARY, DIM), LearnedPositions(DIM, POSITIONS), encoder)


def our_block() -> EncoderBlock:
    feed_forward = FeedForward(DIM, INNER, partial(F.gelu, approximate="tanh"))
    return EncoderBlock(DIM, HEADS, feed_forward=feed_forward, norm=partial(LayerNorm, eps=EPS), placement=PreNorm)
