"""Parts from a configuration: embedding, attention, blocks and stacks, each as `ModelConfig` names it.

B batch, T tokens, D width
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clearhead.models.config import ModelConfig
from clearhead.nn import (
    FEED_FORWARDS,
    NORMS,
    PLACEMENTS,
    POSITIONS,
    SCORES,
    Cache,
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    GrowingCache,
    InputPositions,
    Mask,
    MultiHeadAttention,
    PositionSizes,
    RelativePositions,
    TokenEmbedding,
    WindowCache,
    add,
    concatenate,
    pick_one,
    softmax,
)
from clearhead.nn.dropout import Dropout


class TokenInput(nn.Module):
    """From ids to vectors: token embedding, position, dropout."""

    def __init__(self, config: ModelConfig, size: int, pad: int | None = None):
        super().__init__()
        width = token_dim(config)
        self.tokens = TokenEmbedding(size, width, pad=pad, scale=width**0.5)
        self.positions = input_positions(config, config.max_length)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, T) ids of the tokens from position `start` on -> (B, T, D)."""
        return self.dropout(self.positions(self.tokens(ids), start))


def token_dim(config: ModelConfig) -> int:
    """Width of a token before its position: all of D, or what a concatenated position leaves of it."""
    return config.dim - _position_dim(config) if config.position_concat else config.dim


def _position_dim(config: ModelConfig) -> int:
    """Width of a position at the input: all of D when added, a quarter when concatenated."""
    return config.dim // 4 if config.position_concat else config.dim


def input_positions(config: ModelConfig, max_length: int) -> InputPositions:
    """The positions at the input."""
    return POSITIONS[config.positions].at_input(_position_sizes(config, max_length))


def relative_positions(config: ModelConfig, causal: bool) -> RelativePositions:
    """The positions inside the heads of one stack; all its blocks share them."""
    return POSITIONS[config.positions].in_heads(_position_sizes(config, config.max_length, causal))


def _position_sizes(config: ModelConfig, max_length: int, causal: bool = False) -> PositionSizes:
    return PositionSizes(
        dim=_position_dim(config),
        heads=config.heads,
        key_dim=_key_dim(config),
        max_length=max_length,
        base=config.position_base,
        combine=concatenate if config.position_concat else add,
        causal=causal,
    )


def _key_dim(config: ModelConfig) -> int:
    return config.key_dim or config.dim // config.heads


def self_mask(config: ModelConfig, causal: bool, window: int | None = None) -> Mask:
    """The mask of self-attention without padding; `window` may narrow the configured one."""
    return Mask(causal=causal, window=smaller_window(config.window, window))


def make_cache(config: ModelConfig, window: int | None = None) -> Cache:
    """An empty cache: of fixed size if there is a window, else growing."""
    window = smaller_window(config.window, window)
    return GrowingCache() if window is None else WindowCache(window)


def smaller_window(a: int | None, b: int | None) -> int | None:
    """The smaller of two windows; None = no limit."""
    return min((each for each in (a, b) if each is not None), default=None)


def multi_head(config: ModelConfig, relative: RelativePositions | None = None) -> MultiHeadAttention:
    """One attention layer."""
    return MultiHeadAttention(
        config.dim,
        config.heads,
        kv_heads=config.kv_heads,
        key_dim=config.key_dim,
        value_dim=config.value_dim,
        score=SCORES[config.score](_key_dim(config), config.heads),
        normalize=pick_one if config.hard else softmax,
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
    """A stack of blocks with cross-attention to an encoder's output."""
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
    """The token embeddings of a model."""
    return [part for part in model.modules() if isinstance(part, TokenEmbedding)]


def recompute_blocks(model: nn.Module) -> None:
    """Store no activations inside blocks (gradient checkpointing): less memory, more time."""
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
    return NORMS[config.norm](config.dim) if PLACEMENTS[config.placement].final_norm else None
