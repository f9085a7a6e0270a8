"""From a configuration to parts: every name a config may use, and the part it stands for.

B batch, T tokens, D width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from clearhead.config import FeedForwardName, ModelConfig, NormName, Placement, PoolName, ScoreName
from clearhead.nn import (
    Additive,
    AddNorm,
    Alibi,
    BatchNorm,
    Bilinear,
    Cache,
    Cosine,
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    FeedForward,
    GrowingCache,
    LayerNorm,
    LearnedPositions,
    Mask,
    MultiHeadAttention,
    NoPositions,
    NormAdd,
    NormAddNorm,
    RelativePositions,
    RMSNorm,
    Rotary,
    SinusoidalPositions,
    SwiGLU,
    T5Relative,
    TokenEmbedding,
    WindowCache,
    add,
    concatenate,
    dot,
    first_token,
    last_token,
    mean_token,
    pick_one,
    scaled_dot,
    softmax,
)
from clearhead.nn.dropout import Dropout
from clearhead.nn.norm import MakeNorm
from clearhead.nn.output import Pool
from clearhead.nn.scores import Score

# Each takes (size of one head's queries and keys, number of heads).
SCORES: dict[ScoreName, Callable[[int, int], Score]] = {
    "dot": lambda _, __: dot,
    "scaled_dot": lambda _, __: scaled_dot,
    "additive": lambda size, heads: Additive(size, heads=heads),
    "bilinear": lambda size, heads: Bilinear(size, heads=heads),
    "cosine": lambda _, heads: Cosine(heads),
}
NORMS: dict[NormName, MakeNorm] = {"layer": LayerNorm, "rms": partial(RMSNorm, eps=1e-5), "batch": BatchNorm}
PLACEMENTS: dict[Placement, type[AddNorm]] = {"before": NormAdd, "after": AddNorm, "around": NormAddNorm}
FEED_FORWARDS: dict[FeedForwardName, Callable[..., nn.Module]] = {
    "relu": partial(FeedForward, activation=F.relu),
    "gelu": partial(FeedForward, activation=F.gelu),
    "swiglu": SwiGLU,
}


POOLS: dict[PoolName, Pool] = {"class": first_token, "mean": mean_token, "last": last_token}


class TokenInput(nn.Module):
    """Ids to vectors that know their place: token embedding, position, dropout."""

    def __init__(self, config: ModelConfig, size: int, pad: int | None = None):
        super().__init__()
        width = token_dim(config)
        self.tokens = TokenEmbedding(size, width, pad=pad, scale=width**0.5)
        self.positions = input_positions(config, config.max_length)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, T) ids of the tokens from position `start` on -> (B, T, D)."""
        return self.dropout(self.positions(self.tokens(ids), start))


def position_dim(config: ModelConfig) -> int:
    """Width of an input position: all of it when added, a quarter when concatenated."""
    return config.dim // 4 if config.position_concat else config.dim


def token_dim(config: ModelConfig) -> int:
    """Width of a token before its position joins it."""
    return config.dim - position_dim(config) if config.position_concat else config.dim


def input_positions(config: ModelConfig, length: int) -> nn.Module:
    """What puts order into the input, for the schemes that do it there."""
    combine = concatenate if config.position_concat else add
    return {
        "sinusoidal": lambda: SinusoidalPositions(position_dim(config), config.position_base, combine),
        "learned": lambda: LearnedPositions(position_dim(config), length, combine),
    }.get(config.positions, NoPositions)()


def relative_positions(config: ModelConfig, causal: bool) -> RelativePositions:
    """What puts order into the heads of one stack; all its blocks share it."""
    return {
        "rotary": lambda: Rotary(config.key_dim or config.dim // config.heads, config.position_base),
        "alibi": lambda: Alibi(config.heads),
        "t5": lambda: T5Relative(config.heads, both_ways=not causal),
    }.get(config.positions, RelativePositions)()


def self_mask(config: ModelConfig, causal: bool, window: int | None = None) -> Mask:
    """What every token may see of its own sequence, padding aside; a `window` of the caller's may narrow it."""
    return Mask(causal=causal, window=smaller(config.window, window))


def make_cache(config: ModelConfig, window: int | None = None) -> Cache:
    """The kind of cache that fits: a window never needs more than itself."""
    window = smaller(config.window, window)
    return GrowingCache() if window is None else WindowCache(window)


def smaller(a: int | None, b: int | None) -> int | None:
    """Of two windows, where none is as wide as all."""
    return min((each for each in (a, b) if each is not None), default=None)


def multi_head(config: ModelConfig, relative: RelativePositions | None = None) -> MultiHeadAttention:
    """One attention layer as configured."""
    return MultiHeadAttention(
        config.dim,
        config.heads,
        kv_heads=config.kv_heads,
        key_dim=config.key_dim,
        value_dim=config.value_dim,
        score=SCORES[config.score](config.key_dim or config.dim // config.heads, config.heads),
        weigh=pick_one if config.hard else softmax,
        relative=relative,
        bias=config.bias,
        dropout=config.attention_dropout,
    )


def encoder(config: ModelConfig, causal: bool = False) -> Encoder:
    """A stack of self-attention blocks; `causal` for a decoder-only model."""
    relative = relative_positions(config, causal)
    blocks = [
        EncoderBlock(config.dim, config.heads, attention=multi_head(config, relative), **_block_parts(config))
        for _ in range(config.layers)
    ]
    return Encoder(blocks, _last_norm(config))


def decoder(config: ModelConfig) -> Decoder:
    """A stack of decoder blocks, which read an encoder's output."""
    relative = relative_positions(config, causal=True)
    blocks = [
        DecoderBlock(
            config.dim,
            config.heads,
            attention=multi_head(config, relative),
            cross_attention=multi_head(config),
            **_block_parts(config),
        )
        for _ in range(config.layers)
    ]
    return Decoder(blocks, _last_norm(config))


def token_embeddings(model: nn.Module) -> list[TokenEmbedding]:
    """The tables of token vectors that a model has."""
    return [part for part in model.modules() if isinstance(part, TokenEmbedding)]


def recompute_blocks(model: nn.Module) -> None:
    """Keep no activations inside blocks: the backward pass computes them again, for less memory and more time."""
    for block in model.modules():
        if isinstance(block, EncoderBlock | DecoderBlock):
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]


def _block_parts(config: ModelConfig) -> dict[str, Any]:
    make = FEED_FORWARDS[config.feed_forward]
    return {
        "feed_forward": make(config.dim, config.inner, bias=config.bias, dropout=config.inner_dropout),
        "norm": NORMS[config.norm],
        "placement": PLACEMENTS[config.placement],
        "dropout": config.dropout,
    }


def _last_norm(config: ModelConfig) -> nn.Module | None:
    """Blocks that normalise before leave the sum itself unnormalised: one norm closes the stack."""
    return None if config.placement == "after" else NORMS[config.norm](config.dim)
