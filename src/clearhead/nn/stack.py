"""Stacks: the same block several times, each reading the output of the one below. The lectures' three shapes:

    encoder-only       Encoder                            classification, tagging, images
    decoder-only       Encoder with a causal mask         language models
    encoder-decoder    Encoder, then Decoder              translation

Blocks, masks and caches are those of `block.py`, `masks.py` and `cache.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.block import DecoderBlock, DecoderCache, EncoderBlock, MakeCache
from clearhead.nn.cache import Cache, GrowingCache
from clearhead.nn.masks import Mask
from clearhead.nn.norm import NoNorm

CacheT = TypeVar("CacheT")


class Encoder(nn.Module):
    """Blocks of self-attention; a stack of `PreNorm` blocks ends with a `norm`."""

    def __init__(self, blocks: Sequence[EncoderBlock], norm: nn.Module | None = None):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or NoNorm()

    def forward(self, x: Tensor, mask: Mask | Tensor | None = None, cache: Sequence[Cache] | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        for block, block_cache in zip(self.blocks, _per_block(cache, len(self.blocks)), strict=True):
            x = block(x, mask=mask, cache=block_cache)
        return self.norm(x)

    def make_cache(self, cache: MakeCache = GrowingCache) -> list[Cache]:
        """One empty cache for each block."""
        return [cache() for _ in self.blocks]


class Decoder(nn.Module):
    """Blocks of masked self-attention and cross-attention; causal unless another mask is given."""

    def __init__(self, blocks: Sequence[DecoderBlock], norm: nn.Module | None = None):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or NoNorm()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        cache: Sequence[DecoderCache] | None = None,
    ) -> Tensor:
        """x (B, T, D), memory (B, S, D) -> (B, T, D)."""
        for block, block_cache in zip(self.blocks, _per_block(cache, len(self.blocks)), strict=True):
            x = block(x, memory, mask=mask, memory_mask=memory_mask, cache=block_cache)
        return self.norm(x)

    def make_cache(self, cache: MakeCache = GrowingCache) -> list[DecoderCache]:
        """One empty cache for each block."""
        return [DecoderCache.create(cache) for _ in self.blocks]


def _per_block(cache: Sequence[CacheT] | None, blocks: int) -> Sequence[CacheT | None]:
    """One cache for each block, or None for each."""
    if cache is not None and len(cache) != blocks:
        raise ShapeError(f"{len(cache)} caches were given to a stack of {blocks} blocks; take them from make_cache()")
    return cache or [None] * blocks
