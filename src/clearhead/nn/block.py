"""Blocks and stacks of them: attention and feed-forward, each inside a residual connection with a norm (Add & Norm).

    before   x + F(Norm(x))            after   Norm(x + F(x))
    around   x + Norm(F(Norm(x)))      output   x + Norm(F(x))
    parallel   x + A(Norm(x)) + F(Norm(x))        attention and feed-forward read the same x (`ParallelBlock`)

A stack is the same block several times, each reading the output of the one below. The lectures' three shapes:

    encoder-only       Encoder                            classification, tagging, images
    decoder-only       Encoder with a causal mask         language models
    encoder-decoder    Encoder, then Decoder              translation

    B batch, T tokens, S tokens of the memory, D width

A residual connection registered in `PLACEMENTS` is a value of `model.placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.cache import Cache, GrowingCache, MemoryCache
from clearhead.nn.feedforward import FeedForward, FeedForwardLayer
from clearhead.nn.masks import Mask
from clearhead.nn.norm import Dropout, LayerNorm, MakeNorm, NoNorm
from clearhead.registry import Registry

Sublayer = Callable[[Tensor], Tensor]
MakeCache = Callable[[], Cache]


@dataclass(frozen=True)
class ResidualForm:
    """What native code needs to know: after(x + inside(sublayer(before(x)))); None = no norm there."""

    before: nn.Module | None = None
    inside: nn.Module | None = None
    after: nn.Module | None = None


class Residual(nn.Module):
    """A residual connection around a part of a block, and where its norm stands.

    `reads` is what the part is given of x, `equation` what becomes of x and the part's output z.
    """

    reads: ClassVar[str] = "x"
    equation: ClassVar[str] = "AddNorm(x, z)"
    final_norm: ClassVar[bool] = True  # the stack ends with a norm, because x itself is never normalised

    def __init__(self, dim: int, norm: MakeNorm = LayerNorm, dropout: float = 0.0):
        super().__init__()
        self.norm, self.dropout = norm(dim), Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        raise NotImplementedError

    def native_form(self) -> ResidualForm | None:
        """What an engine without torch computes; None: it cannot."""
        return None


PLACEMENTS: Registry[type[Residual]] = Registry("placement")


@PLACEMENTS.register("after")
class PostNorm(Residual):
    """Norm(x + F(x)): the paper's placement, the lecture's "Add & Norm"."""

    equation = "Norm(x + z)"
    final_norm = False

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))

    def native_form(self) -> ResidualForm:
        return ResidualForm(after=self.norm)


@PLACEMENTS.register("before")
class PreNorm(Residual):
    """x + F(Norm(x)): the residual path is free of norms."""

    reads, equation = "Norm(x)", "x + z"

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))

    def native_form(self) -> ResidualForm:
        return ResidualForm(before=self.norm)


@PLACEMENTS.register("around")
class SandwichNorm(Residual):
    """x + Norm(F(Norm(x))): a norm on both sides of the part."""

    reads, equation = "Norm(x)", "x + Norm(z)"

    def __init__(self, dim: int, norm: MakeNorm = LayerNorm, dropout: float = 0.0):
        super().__init__(dim, norm, dropout)
        self.outer_norm = norm(dim)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.dropout(self.outer_norm(sublayer(self.norm(x))))

    def native_form(self) -> ResidualForm:
        return ResidualForm(before=self.norm, inside=self.outer_norm)


@PLACEMENTS.register("output")
class OutputNorm(Residual):
    """x + Norm(F(x)): only what is added is normalised."""

    equation = "x + Norm(z)"

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.dropout(self.norm(sublayer(x)))

    def native_form(self) -> ResidualForm:
        return ResidualForm(inside=self.norm)


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward. With a causal mask it is the block of a decoder-only model."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        attention: MultiHeadAttention | None = None,
        feed_forward: FeedForwardLayer | None = None,
        norm: MakeNorm = LayerNorm,
        placement: type[Residual] = PostNorm,
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

    def residual_outputs(self) -> list[nn.Linear]:
        """The last matrix of each part, which writes to the residual stream."""
        return [self.self_attention.output, self.feed_forward.outer]


class ParallelBlock(EncoderBlock):
    """x + A(Norm_1(x)) + F(Norm_2(x)): attention and feed-forward side by side; both norms stand before."""

    def forward(self, x: Tensor, mask: Mask | Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        attended = self.self_attention(self.residual1.norm(x), mask=mask, cache=cache)
        computed = self.feed_forward(self.residual2.norm(x))
        return x + self.residual1.dropout(attended) + self.residual2.dropout(computed)


@dataclass
class DecoderCache:
    """The caches of a decoder block: its own tokens (self-attention) and the memory (cross-attention)."""

    own: Cache = field(default_factory=GrowingCache)
    memory: Cache = field(default_factory=MemoryCache)

    def reorder(self, rows: Tensor) -> None:
        self.own.reorder(rows)
        self.memory.reorder(rows)


class DecoderBlock(nn.Module):
    """Masked self-attention, then cross-attention to the memory, then feed-forward."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        attention: MultiHeadAttention | None = None,
        cross_attention: MultiHeadAttention | None = None,
        feed_forward: FeedForwardLayer | None = None,
        norm: MakeNorm = LayerNorm,
        placement: type[Residual] = PostNorm,
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

    def residual_outputs(self) -> list[nn.Linear]:
        """The last matrix of each part, which writes to the residual stream."""
        return [self.self_attention.output, self.cross_attention.output, self.feed_forward.outer]


# --- stacks ---

CacheT = TypeVar("CacheT")


class _Stack(nn.Module):
    """Blocks, and a norm after the last where they end without one (`Residual.final_norm`)."""

    def __init__(self, blocks: Sequence[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or NoNorm()

    def _with_caches(self, cache: Sequence[CacheT] | None) -> Iterator[tuple[nn.Module, CacheT | None]]:
        """Each block with its cache, or with None."""
        count = len(self.blocks)
        if cache is not None and len(cache) != count:
            raise ShapeError(
                f"{len(cache)} caches were given to a stack of {count} blocks; take them from make_cache()"
            )
        caches: Sequence[CacheT | None] = cache or [None] * count
        return zip(self.blocks, caches, strict=True)


class Encoder(_Stack):
    """Blocks of self-attention; a stack of `PreNorm` blocks ends with a `norm`."""

    def forward(self, x: Tensor, mask: Mask | Tensor | None = None, cache: Sequence[Cache] | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        for block, block_cache in self._with_caches(cache):
            x = block(x, mask=mask, cache=block_cache)
        return self.norm(x)

    def make_cache(self, cache: MakeCache = GrowingCache) -> list[Cache]:
        """One empty cache for each block."""
        return [cache() for _ in self.blocks]


class Decoder(_Stack):
    """Blocks of masked self-attention and cross-attention; causal unless another mask is given."""

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        cache: Sequence[DecoderCache] | None = None,
    ) -> Tensor:
        """x (B, T, D), memory (B, S, D) -> (B, T, D)."""
        for block, block_cache in self._with_caches(cache):
            x = block(x, memory, mask=mask, memory_mask=memory_mask, cache=block_cache)
        return self.norm(x)

    def make_cache(self, cache: MakeCache = GrowingCache) -> list[DecoderCache]:
        """One empty cache for each block; `cache` makes those of self-attention."""
        return [DecoderCache(cache()) for _ in self.blocks]
