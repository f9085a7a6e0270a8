"""Ours against torch.nn: the same weights give the same numbers and the same gradients.

torch's boolean masks say what is hidden, ours what is visible; hence every `~`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    Mask,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    causal_mask,
)
from clearhead.nn.norm import MakeNorm

from .copying import Pair, Table, into, same, within
from .setting import DIM, HEAD_DIM, HEADS, INNER, LAYERS, MASKS, MEMORY_REAL, REAL, B, S, T, tokens

MEMORY_DIM = 13
EVEN_HEADS = 4
HIDDEN, MEMORY_HIDDEN = ~REAL.squeeze(1), ~MEMORY_REAL.squeeze(1)  # (B, T), (B, S)
AHEAD = ~causal_mask(T)  # (T, T)

ATTENTION: Table = {
    "in_proj_weight": into("query.weight", "key.weight", "value.weight"),
    "in_proj_bias": into("query.bias", "key.bias", "value.bias"),
    "q_proj_weight": "query.weight",  # torch keeps the three apart when the memory has its own width
    "k_proj_weight": "key.weight",
    "v_proj_weight": "value.weight",
    "out_proj": "output",
}
ENCODER_BLOCK = within("self_attn", "self_attention", ATTENTION) | {
    "linear1": "feed_forward.inner",
    "linear2": "feed_forward.outer",
    "norm1": "residual1.norm",
    "norm2": "residual2.norm",
}
DECODER_BLOCK = ENCODER_BLOCK | within("multihead_attn", "cross_attention", ATTENTION) | {"norm3": "residual3.norm"}
ENCODER = within("layers.*", "blocks.*", ENCODER_BLOCK) | {"norm": "norm"}
DECODER = within("layers.*", "blocks.*", DECODER_BLOCK) | {"norm": "norm"}
TRANSFORMER = within("encoder", "encoder", ENCODER) | within("decoder", "decoder", DECODER)

SELF_MASKS = {
    "open": {},
    "causal": {"attn_mask": AHEAD},
    "padding": {"key_padding_mask": HIDDEN},
    "causal and padding": {"attn_mask": AHEAD, "key_padding_mask": HIDDEN},
}
ANY_TABLE = torch.rand(B, T, S, generator=torch.Generator().manual_seed(1)) < 0.6
CROSS_MASKS = {
    "open": (None, {}),
    "padding": (MEMORY_REAL, {"key_padding_mask": MEMORY_HIDDEN}),
    "any": (ANY_TABLE, {"attn_mask": ~ANY_TABLE.repeat_interleave(HEADS, dim=0)}),  # (B × H, T, S)
}

each_self_mask = pytest.mark.parametrize(
    ("mask", "theirs"), [(MASKS[name], SELF_MASKS[name]) for name in MASKS], ids=MASKS
)
each_cross_mask = pytest.mark.parametrize(("mask", "theirs"), CROSS_MASKS.values(), ids=CROSS_MASKS)
each_memory = pytest.mark.parametrize("memory_dim", [DIM, MEMORY_DIM], ids=["same width", "own width"])


@each_self_mask
def test_self_attention(kernel, mask, theirs):
    pair = Pair(kernel(MultiHeadAttention(DIM, HEADS)), self_attention(), ATTENTION)
    x = tokens()
    pair.agree(pair.ours(x, mask=mask), pair.theirs(x, x, x, need_weights=False, **theirs)[0], x)


@each_self_mask
@pytest.mark.parametrize("averaged", [False, True], ids=["each head", "averaged"])
def test_self_attention_weights(mask, theirs, averaged):
    pair = Pair(MultiHeadAttention(DIM, HEADS), self_attention(), ATTENTION)
    x = tokens()
    weights = pair.ours.weights(x, mask=mask)  # (B, H, T, T)
    _, expected = pair.theirs(x, x, x, average_attn_weights=averaged, **theirs)
    pair.agree(weights.mean(1) if averaged else weights, expected, x)


@each_memory
@each_cross_mask
def test_cross_attention(kernel, mask, theirs, memory_dim):
    pair = Pair(kernel(MultiHeadAttention(DIM, HEADS, memory_dim=memory_dim)), cross_attention(memory_dim), ATTENTION)
    x, memory = tokens(), tokens(S, memory_dim)
    expected, _ = pair.theirs(x, memory, memory, need_weights=False, **theirs)
    pair.agree(pair.ours(x, memory, mask), expected, x, memory)


@each_memory
@each_cross_mask
def test_cross_attention_weights(mask, theirs, memory_dim):
    pair = Pair(MultiHeadAttention(DIM, HEADS, memory_dim=memory_dim), cross_attention(memory_dim), ATTENTION)
    x, memory = tokens(), tokens(S, memory_dim)
    _, expected = pair.theirs(x, memory, memory, average_attn_weights=False, **theirs)
    pair.agree(pair.ours.weights(x, memory, mask), expected, x, memory)


def self_attention() -> nn.MultiheadAttention:
    return nn.MultiheadAttention(DIM, HEADS, batch_first=True)


def cross_attention(memory_dim: int) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(DIM, HEADS, kdim=memory_dim, vdim=memory_dim, batch_first=True)


@dataclass(frozen=True)
class Design:
    """One way to build a block, in torch's arguments and in our parts."""

    norm_first: bool
    activation: str
    bias: bool = True
    heads: int = HEADS

    @property
    def dim(self) -> int:
        return self.heads * HEAD_DIM

    @property
    def theirs(self) -> dict[str, Any]:
        sizes = {
            "d_model": self.dim,
            "nhead": self.heads,
            "dim_feedforward": INNER,
            "dropout": 0.0,
            "batch_first": True,
        }
        return sizes | {"norm_first": self.norm_first, "activation": self.activation, "bias": self.bias}

    @property
    def norm(self) -> MakeNorm:
        return partial(LayerNorm, bias=self.bias)

    @property
    def parts(self) -> dict[str, Any]:
        return {
            "attention": self.attention(),
            "feed_forward": FeedForward(self.dim, INNER, getattr(F, self.activation), bias=self.bias),
            "norm": self.norm,
            "placement": PreNorm if self.norm_first else PostNorm,
        }

    def attention(self) -> MultiHeadAttention:
        return MultiHeadAttention(self.dim, self.heads, bias=self.bias)

    def encoder_block(self) -> EncoderBlock:
        return EncoderBlock(self.dim, self.heads, **self.parts)

    def decoder_block(self) -> DecoderBlock:
        return DecoderBlock(self.dim, self.heads, cross_attention=self.attention(), **self.parts)

    def __str__(self) -> str:
        placement = "pre-norm" if self.norm_first else "post-norm"
        return f"{placement} {self.activation}" + ("" if self.bias else " without bias")


DESIGNS = [Design(*choice) for choice in product([False, True], ["relu", "gelu"])] + [Design(True, "gelu", bias=False)]
each_design = pytest.mark.parametrize("design", DESIGNS, ids=str)
EVEN = [Design(norm_first, "relu", heads=EVEN_HEADS) for norm_first in (False, True)]
each_even_placement = pytest.mark.parametrize("design", EVEN, ids=str)


@each_design
@each_self_mask
def test_encoder_block(kernel, design, mask, theirs):
    pair = Pair(kernel(design.encoder_block()), nn.TransformerEncoderLayer(**design.theirs), ENCODER_BLOCK)
    x = tokens()
    expected = pair.theirs(x, theirs.get("attn_mask"), theirs.get("key_padding_mask"))
    pair.agree(pair.ours(x, mask), expected, x)


@each_design
@each_self_mask
def test_encoder(kernel, design, mask, theirs):
    pair = Pair(kernel(our_encoder(design)), their_encoder(design), ENCODER)
    x = tokens()
    expected = pair.theirs(x, theirs.get("attn_mask"), theirs.get("key_padding_mask"))
    pair.agree(pair.ours(x, mask), expected, x)


@each_design
def test_decoder_block(kernel, design):
    pair = Pair(kernel(design.decoder_block()), nn.TransformerDecoderLayer(**design.theirs), DECODER_BLOCK)
    x, memory = tokens(), tokens(S)
    expected = pair.theirs(x, memory, AHEAD, None, HIDDEN, MEMORY_HIDDEN)
    pair.agree(pair.ours(x, memory, MASKS["causal and padding"], MEMORY_REAL), expected, x, memory)


@each_design
def test_decoder_is_causal_unless_told_otherwise(kernel, design):
    pair = Pair(kernel(our_decoder(design)), their_decoder(design), DECODER)
    x, memory = tokens(), tokens(S)
    pair.agree(pair.ours(x, memory), pair.theirs(x, memory, AHEAD), x, memory)
    pair.agree(pair.ours(x, memory, Mask()), pair.theirs(x, memory), x, memory)


@each_design
def test_decoder_with_padding(kernel, design):
    pair = Pair(kernel(our_decoder(design)), their_decoder(design), DECODER)
    x, memory = tokens(), tokens(S)
    expected = pair.theirs(x, memory, AHEAD, None, HIDDEN, MEMORY_HIDDEN)
    pair.agree(pair.ours(x, memory, MASKS["causal and padding"], MEMORY_REAL), expected, x, memory)


@each_design
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch says that its fast path will not be taken
def test_transformer(kernel, design):
    """ "Attention Is All You Need", whole: torch closes both stacks with a norm, wherever the blocks have theirs."""
    theirs = nn.Transformer(num_encoder_layers=LAYERS, num_decoder_layers=LAYERS + 1, **design.theirs)
    ours = nn.ModuleDict({"encoder": our_encoder(design), "decoder": our_decoder(design)})
    pair = Pair(kernel(ours), theirs, TRANSFORMER)
    source, target = tokens(S), tokens()
    memory = ours["encoder"](source, MEMORY_REAL)
    output = ours["decoder"](target, memory, MASKS["causal and padding"], MEMORY_REAL)
    expected = theirs(
        source,
        target,
        tgt_mask=AHEAD,
        src_key_padding_mask=MEMORY_HIDDEN,
        tgt_key_padding_mask=HIDDEN,
        memory_key_padding_mask=MEMORY_HIDDEN,
    )
    pair.agree(output, expected, source, target)


def our_encoder(design: Design) -> Encoder:
    return Encoder([design.encoder_block() for _ in range(LAYERS)], norm=design.norm(design.dim))


def our_decoder(design: Design) -> Decoder:
    return Decoder([design.decoder_block() for _ in range(LAYERS + 1)], norm=design.norm(design.dim))


def their_encoder(design: Design, nested: bool = False) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(**design.theirs)
    return nn.TransformerEncoder(layer, LAYERS, design.norm(design.dim), enable_nested_tensor=nested)


def their_decoder(design: Design) -> nn.TransformerDecoder:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(**design.theirs), LAYERS + 1, design.norm(design.dim))


@pytest.fixture
def fast_path(monkeypatch):
    """Calls of the road that torch takes without gradients, for an even number of heads."""
    calls, fast = [], torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *given: calls.append(given) or fast(*given))
    return calls


@each_even_placement
def test_fast_path_of_the_encoder_block(kernel, design, fast_path):
    pair = Pair(kernel(design.encoder_block()), nn.TransformerEncoderLayer(**design.theirs), ENCODER_BLOCK)
    x = tokens(dim=design.dim)
    with torch.no_grad():
        same("output", pair.ours(x, REAL), pair.theirs(x, src_key_padding_mask=HIDDEN))
    assert len(fast_path) == 1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fast_path_of_the_encoder(kernel, fast_path):
    """Here torch leaves the padding out and puts a zero vector in its place, so only the real rows are compared."""
    design = Design(norm_first=False, activation="relu", heads=EVEN_HEADS)
    pair = Pair(kernel(our_encoder(design)), their_encoder(design, nested=True), ENCODER)
    x = tokens(dim=design.dim)
    with torch.no_grad():
        output, expected = pair.ours(x, REAL), pair.theirs(x, src_key_padding_mask=HIDDEN)
    real = REAL.squeeze(1)  # (B, T)
    same("real rows", output[real], expected[real])
    assert len(fast_path) == LAYERS
