"""Marian: the paper's translation model, post-norm, with sines and cosines in an order of its own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    FeedForward,
    Mask,
    MultiHeadAttention,
    SinusoidalPositions,
    TokenEmbedding,
)

from .copying import Pair, Table, same, within
from .setting import (
    DIM,
    HEADS,
    INNER,
    LAYERS,
    LENGTHS,
    MASKS,
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

POSITIONS, DECODER_INNER = 13, 19

ATTENTION: Table = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
FEED_FORWARD: Table = {"fc1": "feed_forward.inner", "fc2": "feed_forward.outer"}
ENCODER_BLOCK = (
    within("self_attn", "self_attention", ATTENTION)
    | FEED_FORWARD
    | {"self_attn_layer_norm": "residual1.norm", "final_layer_norm": "residual2.norm"}
)
DECODER_BLOCK = (
    within("self_attn", "self_attention", ATTENTION)
    | within("encoder_attn", "cross_attention", ATTENTION)
    | FEED_FORWARD
    | {
        "self_attn_layer_norm": "residual1.norm",
        "encoder_attn_layer_norm": "residual2.norm",
        "final_layer_norm": "residual3.norm",
    }
)
TRANSLATOR = (
    {"shared": "embedding.table"}
    | within("encoder.layers.*", "encoder.blocks.*", ENCODER_BLOCK)
    | within("decoder.layers.*", "decoder.blocks.*", DECODER_BLOCK)
)


def config(transformers, written="eager"):
    return transformers.MarianConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        d_model=DIM,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS + 1,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=DECODER_INNER,
        activation_function="silu",
        scale_embedding=True,
        pad_token_id=0,
        decoder_start_token_id=0,
        attn_implementation=written,
    )


def their_attention(transformers):
    return transformers.models.marian.modeling_marian.MarianAttention(DIM, HEADS, config=config(transformers))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_self_attention(transformers, kernel, mask):
    pair = Pair(kernel(MultiHeadAttention(DIM, HEADS)), their_attention(transformers), ATTENTION)
    x = tokens()
    output, weights = pair.theirs(x, attention_mask=added(mask, T, T))
    pair.agree(pair.ours(x, mask=mask), output, x)
    pair.agree(pair.ours.weights(x, mask=mask), weights, x)


def test_cross_attention(transformers, kernel):
    pair = Pair(kernel(MultiHeadAttention(DIM, HEADS)), their_attention(transformers), ATTENTION)
    x, memory = tokens(), tokens(S)
    output, weights = pair.theirs(x, memory, attention_mask=added(Mask(table=MEMORY_REAL), T, S))
    pair.agree(pair.ours(x, memory, MEMORY_REAL), output, x, memory)
    pair.agree(pair.ours.weights(x, memory, MEMORY_REAL), weights, x, memory)


def sines_first(x: Tensor, positions: Tensor) -> Tensor:
    """Marian has all sines before all cosines, where the paper lets them alternate."""
    return x + torch.cat((positions[..., 0::2], positions[..., 1::2]), dim=-1)


def test_positions(transformers):
    theirs = transformers.MarianModel(config(transformers)).encoder.embed_positions.weight
    ours = SinusoidalPositions(DIM, combine=sines_first)
    same("positions", ours(torch.zeros(1, POSITIONS, DIM))[0], theirs)


def test_translator(transformers, kernel, written):
    pair = Pair(kernel(our_translator()), transformers.MarianModel(config(transformers, written)), TRANSLATOR)
    source, target = sentences(MEMORY_LENGTHS, S), sentences(LENGTHS, T)
    pair.agree(pair.ours(source, target), translation(pair.theirs, source, target))


def our_translator() -> Translator:
    encoder = [EncoderBlock(DIM, HEADS, feed_forward=FeedForward(DIM, INNER, F.silu)) for _ in range(LAYERS)]
    decoder = [
        DecoderBlock(DIM, HEADS, feed_forward=FeedForward(DIM, DECODER_INNER, F.silu)) for _ in range(LAYERS + 1)
    ]
    embedding = TokenEmbedding(VOCABULARY, DIM, pad=0, scale=math.sqrt(DIM))
    return Translator(embedding, SinusoidalPositions(DIM, combine=sines_first), Encoder(encoder), Decoder(decoder))
