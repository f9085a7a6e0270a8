"""BERT: post-norm, GELU, learned positions, and a third embedding for which sentence a token is in."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn import (
    Encoder,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Mask,
    MultiHeadAttention,
    PostNorm,
    TokenEmbedding,
    padding_mask,
)

from .copying import Pair, Table, within
from .setting import (
    DIM,
    HEADS,
    INNER,
    LAYERS,
    LENGTHS,
    MASKS,
    REAL,
    VOCABULARY,
    T,
    added,
    sentences,
    tokens,
)

POSITIONS, KINDS = 13, 3
EPS = 1e-4
make_norm = partial(LayerNorm, eps=EPS)

ATTENTION: Table = {
    "self.query": "attention.query",
    "self.key": "attention.key",
    "self.value": "attention.value",
    "output.dense": "attention.output",
    "output.LayerNorm": "residual.norm",
}
BLOCK: Table = {
    "attention.self.query": "self_attention.query",
    "attention.self.key": "self_attention.key",
    "attention.self.value": "self_attention.value",
    "attention.output.dense": "self_attention.output",
    "attention.output.LayerNorm": "residual1.norm",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
    "output.LayerNorm": "residual2.norm",
}
ENCODER = within("layer.*", "blocks.*", BLOCK)
BODY = within("encoder", "encoder", ENCODER) | {
    "embeddings.word_embeddings": "embedding.table",
    "embeddings.position_embeddings": "positions.table",
    "embeddings.token_type_embeddings": "kinds.table",
    "embeddings.LayerNorm": "norm",
}


class Attention(nn.Module):
    """Theirs holds the Add & Norm after it, so ours is given one too."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.residual = MultiHeadAttention(DIM, HEADS), PostNorm(DIM, make_norm)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        return self.residual(x, lambda y: self.attention(y, mask=mask))


class BertBody(nn.Module):
    """Three embeddings summed, a norm, and the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.kinds = TokenEmbedding(VOCABULARY, DIM, pad=0), TokenEmbedding(KINDS, DIM)
        self.positions, self.norm = LearnedPositions(DIM, POSITIONS), make_norm(DIM)
        self.encoder = our_encoder()

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        x = self.positions(self.embedding(ids) + self.kinds(kinds))
        return self.encoder(self.norm(x), padding_mask(ids))


def our_encoder() -> Encoder:
    return Encoder(
        [EncoderBlock(DIM, HEADS, feed_forward=FeedForward(DIM, INNER, F.gelu), norm=make_norm) for _ in range(LAYERS)]
    )


def config(transformers, written="eager"):
    return transformers.BertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        type_vocab_size=KINDS,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        layer_norm_eps=EPS,
        attn_implementation=written,
    )


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention(transformers, kernel, mask):
    theirs = transformers.models.bert.modeling_bert.BertAttention(config(transformers))
    pair = Pair(kernel(Attention()), theirs, ATTENTION)
    x = tokens()
    output, weights = theirs(x, added(mask, T, T))
    pair.agree(pair.ours(x, mask), output, x)
    pair.agree(pair.ours.attention.weights(x, mask=mask), weights, x)


def test_encoder(transformers, kernel):
    theirs = transformers.models.bert.modeling_bert.BertEncoder(config(transformers))
    pair = Pair(kernel(our_encoder()), theirs, ENCODER)
    x = tokens()
    expected = theirs(x, added(Mask(table=REAL), T, T)).last_hidden_state
    pair.agree(pair.ours(x, REAL), expected, x)


def test_body(transformers, kernel, written):
    theirs = transformers.BertModel(config(transformers, written), add_pooling_layer=False)
    pair = Pair(kernel(BertBody()), theirs, BODY)
    ids, kinds = sentences(LENGTHS, T), torch.randint(KINDS, (len(LENGTHS), T))
    expected = theirs(ids, attention_mask=ids != 0, token_type_ids=kinds).last_hidden_state
    pair.agree(pair.ours(ids, kinds), expected)
