"""Blocks: attention and feed-forward, each wrapped in a residual connection and a norm (Add & Norm).

B batch, T tokens, S tokens of the memory, D width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.cache import Cache, GrowingCache, MemoryCache
from clearhead.nn.dropout import Dropout
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.masks import Mask
from clearhead.nn.norm import LayerNorm, MakeNorm

Sublayer = Callable[[Tensor], Tensor]
MakeCache = Callable[[], Cache]


class AddNorm(nn.Module):
    """Norm(x + F(x)): the paper's placement, after the sum."""

    def __init__(self, dim: int, norm: MakeNorm = LayerNorm, dropout: float = 0.0):
        super().__init__()
        self.norm, self.dropout = norm(dim), Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self.norm(x + self.dropout(sublayer(x)))


class NormAdd(AddNorm):
    """x + F(Norm(x)): the norm before, so that the residual path is free; needs one more norm after the stack."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return x + self.dropout(sublayer(self.norm(x)))


class NormAddNorm(AddNorm):
    """x + Norm(F(Norm(x))): a norm on both sides of the part."""

    def __init__(self, dim: int, norm: MakeNorm = LayerNorm, dropout: float = 0.0):
        super().__init__(dim, norm, dropout)
        self.outer_norm = norm(dim)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return x + self.dropout(self.outer_norm(sublayer(self.norm(x))))


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward. With a causal mask it is the block of a decoder-only model."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        attention: MultiHeadAttention | None = None,
        feed_forward: nn.Module | None = None,
        norm: MakeNorm = LayerNorm,
        placement: type[AddNorm] = AddNorm,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.self_attention = attention or MultiHeadAttention(dim, heads)
        self.feed_forward = feed_forward or FeedForward(dim)
        self.residual1 = placement(dim, norm, dropout)
        self.residual2 = placement(dim, norm, dropout)

    def forward(self, x: Tensor, mask: Mask | Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.residual1(x, lambda y: self.self_attention(y, mask=mask, cache=cache))
        return self.residual2(x, self.feed_forward)


@dataclass
class DecoderCache:
    """What a decoder block remembers: the tokens it has written, and the memory it reads."""

    own: Cache
    memory: Cache

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was, in both."""
        self.own.reorder(rows)
        self.memory.reorder(rows)

    @staticmethod
    def of(cache: MakeCache = GrowingCache) -> DecoderCache:
        """A new one; `cache` makes the part that grows."""
        return DecoderCache(cache(), MemoryCache())


class DecoderBlock(nn.Module):
    """Masked self-attention, then cross-attention to the memory, then feed-forward."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        attention: MultiHeadAttention | None = None,
        cross_attention: MultiHeadAttention | None = None,
        feed_forward: nn.Module | None = None,
        norm: MakeNorm = LayerNorm,
        placement: type[AddNorm] = AddNorm,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.self_attention = attention or MultiHeadAttention(dim, heads)
        self.cross_attention = cross_attention or MultiHeadAttention(dim, heads)
        self.feed_forward = feed_forward or FeedForward(dim)
        self.residual1 = placement(dim, norm, dropout)
        self.residual2 = placement(dim, norm, dropout)
        self.residual3 = placement(dim, norm, dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """x (B, T, D), memory (B, S, D) -> (B, T, D); without a `mask` the decoder is causal."""
        mask = Mask(causal=True) if mask is None else mask
        own, read = (cache.own, cache.memory) if cache else (None, None)
        x = self.residual1(x, lambda y: self.self_attention(y, mask=mask, cache=own))
        x = self.residual2(x, lambda y: self.cross_attention(y, memory, mask=memory_mask, cache=read))
        return self.residual3(x, self.feed_forward)
