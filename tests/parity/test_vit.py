"""The Vision Transformer: patches by a strided convolution, a class token, learned positions, pre-norm."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn import (
    ClassToken,
    Encoder,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    PatchEmbedding,
    PreNorm,
)

from .copying import Pair, Table, into, within
from .setting import DIM, HEADS, INNER, LAYERS, B, tokens

CHANNELS, PATCH, HEIGHT, WIDTH = 4, 5, 10, 15
PATCHES = 2 * 3
EPS = 1e-4


def as_rows(theirs: Tensor) -> Tensor:
    """The convolution's (D, C, P, P) -> (D, P × P × C), the order in which a patch is flattened."""
    return theirs.permute(0, 2, 3, 1).flatten(1) if theirs.dim() == 4 else theirs


ATTENTION: Table = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
BLOCK = within("attention", "self_attention", ATTENTION) | {
    "layernorm_before": "residual1.norm",
    "layernorm_after": "residual2.norm",
    "mlp.fc1": "feed_forward.inner",
    "mlp.fc2": "feed_forward.outer",
}
PROJECTION: Table = {"projection": into("linear", change=as_rows)}
BODY = (
    within("layers.*", "encoder.blocks.*", BLOCK)
    | within("embeddings.patch_embeddings", "patches", PROJECTION)
    | {
        "embeddings.cls_token": into("class_token.vector", change=torch.flatten),
        "embeddings.position_embeddings": into("positions.table.weight", change=partial(torch.squeeze, dim=0)),
        "layernorm": "encoder.norm",
    }
)


def config(transformers, written="eager"):
    return transformers.ViTConfig(
        image_size=(HEIGHT, WIDTH),
        patch_size=PATCH,
        num_channels=CHANNELS,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        layer_norm_eps=EPS,
        attn_implementation=written,
    )


def test_attention(transformers, kernel):
    theirs = transformers.models.vit.modeling_vit.ViTAttention(config(transformers))
    pair = Pair(kernel(MultiHeadAttention(DIM, HEADS)), theirs, ATTENTION)
    x = tokens()
    output, weights = theirs(x)
    pair.agree(pair.ours(x), output, x)
    pair.agree(pair.ours.weights(x), weights, x)


def test_patches(transformers):
    theirs = transformers.models.vit.modeling_vit.ViTPatchEmbeddings(config(transformers))
    pair = Pair(PatchEmbedding(PATCH, CHANNELS, DIM), theirs, PROJECTION)
    images = pictures()
    pair.agree(pair.ours(images), theirs(images), images)


def test_body(transformers, kernel, written):
    theirs = transformers.ViTModel(config(transformers, written), add_pooling_layer=False)
    pair = Pair(kernel(our_body()), theirs, BODY)
    images = pictures()
    pair.agree(pair.ours(images), theirs(images).last_hidden_state, images)


def pictures() -> Tensor:
    return torch.randn(B, CHANNELS, HEIGHT, WIDTH, requires_grad=True)


def our_body() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            patches=PatchEmbedding(PATCH, CHANNELS, DIM),
            class_token=ClassToken(DIM),
            positions=LearnedPositions(DIM, 1 + PATCHES),
            encoder=Encoder([our_block() for _ in range(LAYERS)], norm=LayerNorm(DIM, EPS)),
        )
    )


def our_block() -> EncoderBlock:
    feed_forward, norm = FeedForward(DIM, INNER, F.gelu), partial(LayerNorm, eps=EPS)
    return EncoderBlock(DIM, HEADS, feed_forward=feed_forward, norm=norm, placement=PreNorm)
