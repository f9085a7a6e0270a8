"""Small float64 stacks of every position scheme, for the properties that all of them share."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from clearhead.nn import (
    Alibi,
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    PreNorm,
    Rotary,
    SinusoidalPositions,
    T5Relative,
)

LONGEST = 16


@dataclass(frozen=True)
class Sizes:
    batch: int
    length: int
    memory: int
    heads: int
    kv_heads: int
    head_dim: int
    seed: int

    @property
    def dim(self) -> int:
        return self.heads * self.head_dim


def sizes(shortest: int = 1) -> st.SearchStrategy[Sizes]:
    return st.builds(
        lambda kv_heads, groups, **rest: Sizes(kv_heads=kv_heads, heads=kv_heads * groups, **rest),
        batch=st.integers(1, 3),
        length=st.integers(shortest, 7),
        memory=st.integers(1, 5),
        kv_heads=st.integers(1, 2),
        groups=st.integers(1, 3),
        head_dim=st.sampled_from([4, 6, 10]),
        seed=st.integers(0, 2**31),
    )


SCHEMES = {
    "none": lambda _: (NoPositions(), None),
    "sinusoidal": lambda size: (SinusoidalPositions(size.dim), None),
    "learned": lambda size: (LearnedPositions(size.dim, LONGEST), None),
    "rotary": lambda size: (NoPositions(), Rotary(size.head_dim)),
    "alibi": lambda size: (NoPositions(), Alibi(size.heads)),
    "t5": lambda size: (NoPositions(), T5Relative(size.heads, buckets=8, longest=12)),
}


class Model(nn.Module):
    """Positions and a stack of two blocks."""

    def __init__(self, scheme: str, size: Sizes, decoder: bool = False):
        super().__init__()
        torch.default_generator.manual_seed(size.seed)  # much faster than torch.manual_seed, which asks for GPUs
        self.positions, relative = SCHEMES[scheme](size)

        def block() -> EncoderBlock | DecoderBlock:
            attention = MultiHeadAttention(size.dim, size.heads, kv_heads=size.kv_heads, relative=relative)
            parts = {"attention": attention, "feed_forward": FeedForward(size.dim, 5), "placement": PreNorm}
            return (DecoderBlock if decoder else EncoderBlock)(size.dim, size.heads, **parts)

        self.stack = (Decoder if decoder else Encoder)([block(), block()], nn.LayerNorm(size.dim))
        for part in self.modules():
            if isinstance(part, nn.Embedding):
                nn.init.normal_(part.weight)  # as if trained: learned positions start near zero
        self.double()

    def forward(self, x: Tensor, *memory: Tensor, start: int = 0, **named) -> Tensor:
        return self.stack(self.positions(x, start), *memory, **named)


def tokens(size: Sizes, length: int | None = None) -> Tensor:
    return torch.randn(size.batch, size.length if length is None else length, size.dim, dtype=torch.float64)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    assert_close(actual, expected, rtol=0, atol=1e-11)
