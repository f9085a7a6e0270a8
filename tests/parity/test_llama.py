"""Llama: rotary positions, key-value heads shared by groups, RMSNorm before, SwiGLU, no biases."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from clearhead.nn import (
    Encoder,
    EncoderBlock,
    Mask,
    MultiHeadAttention,
    NoPositions,
    PreNorm,
    RMSNorm,
    Rotary,
    SwiGLU,
    TokenEmbedding,
    padding_mask,
)

from .copying import Pair, Table, within
from .setting import INNER, LAYERS, LENGTHS, MASKS, VOCABULARY, Body, T, added, sentences, tokens

DIM, HEADS, HEAD_DIM = 42, 6, 10  # the size of a head is free
BASE, EPS = 500.0, 1e-4

ATTENTION: Table = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
BLOCK = within("self_attn", "self_attention", ATTENTION) | {
    "mlp.gate_proj": "feed_forward.gate",
    "mlp.up_proj": "feed_forward.inner",
    "mlp.down_proj": "feed_forward.outer",
    "input_layernorm": "residual1.norm",
    "post_attention_layernorm": "residual2.norm",
}
BODY = within("layers.*", "encoder.blocks.*", BLOCK) | {"embed_tokens": "embedding.table", "norm": "encoder.norm"}

each_grouping = pytest.mark.parametrize("kv_heads", [1, 2, 6], ids=["one group", "groups of three", "no groups"])


def config(transformers, kv_heads, written="eager"):
    return transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=DIM,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=kv_heads,
        head_dim=HEAD_DIM,
        rms_norm_eps=EPS,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        attn_implementation=written,
    )


@each_grouping
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention(transformers, kernel, kv_heads, mask):
    module, setting = transformers.models.llama.modeling_llama, config(transformers, kv_heads)
    pair = Pair(kernel(our_attention(kv_heads)), module.LlamaAttention(setting, 0), ATTENTION)
    x = tokens(T, DIM)
    angles = module.LlamaRotaryEmbedding(setting)(x, torch.arange(T).unsqueeze(0))
    output, weights = pair.theirs(x, angles, added(mask, T, T))
    pair.agree(pair.ours(x, mask=mask), output, x)
    pair.agree(pair.ours.weights(x, mask=mask), weights, x)


@each_grouping
def test_body(transformers, kernel, written, kv_heads):
    theirs = transformers.LlamaModel(config(transformers, kv_heads, written))
    pair = Pair(kernel(our_body(kv_heads)), theirs, BODY)
    ids = sentences(LENGTHS, T)
    expected = theirs(ids, attention_mask=ids != 0).last_hidden_state
    pair.agree(pair.ours(ids, Mask(causal=True) & padding_mask(ids)), expected)


def our_attention(kv_heads: int) -> MultiHeadAttention:
    return MultiHeadAttention(
        DIM,
        HEADS,
        kv_heads=kv_heads,
        key_dim=HEAD_DIM,
        value_dim=HEAD_DIM,
        relative=Rotary(HEAD_DIM, BASE),
        bias=False,
    )


def our_body(kv_heads: int) -> Body:
    blocks = [
        EncoderBlock(
            DIM,
            HEADS,
            attention=our_attention(kv_heads),
            feed_forward=SwiGLU(DIM, INNER),
            norm=partial(RMSNorm, eps=EPS),
            placement=PreNorm,
        )
        for _ in range(LAYERS)
    ]
    return Body(TokenEmbedding(VOCABULARY, DIM), NoPositions(), Encoder(blocks, norm=RMSNorm(DIM, EPS)))
