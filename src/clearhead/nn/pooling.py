"""Pooling: one output for a sequence, a linear map of one vector.

That vector is the output of the class token, a mean, the largest numbers, the last (stop) token, or all tokens
flattened into one. The softmax is left to the loss.

    B batch, T tokens, D width, C classes

A pooling function registered in `POOLS` is a value of `model.pool`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ShapeError
from clearhead.registry import Registry

Pool = Callable[[Tensor, Tensor | None], Tensor]  # x (B, T, D), real tokens (B, T) or None -> (B, D), see VECTORS

POOLS: Registry[Pool] = Registry("pool")


@POOLS.register("class")
def first_token(x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: ARG001 - the class token is always real
    """The vector of the class token, which stands first."""
    return x[:, 0]


@POOLS.register("mean")
def mean_token(x: Tensor, real: Tensor | None = None) -> Tensor:
    """The average of the real tokens; zeros for a row that has none."""
    if real is None:
        return x.mean(1)
    weight = real.unsqueeze(-1).to(x.dtype)  # (B, T, 1)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1.0)


@POOLS.register("max")
def max_token(x: Tensor, real: Tensor | None = None) -> Tensor:
    """The largest number of each feature over the real tokens; zeros for a row that has none."""
    if real is None:
        return x.amax(1)
    shown = x.masked_fill(~real.unsqueeze(-1), -torch.inf).amax(1)
    return shown.masked_fill(~real.any(1, keepdim=True), 0.0)


@POOLS.register("last")
def last_token(x: Tensor, real: Tensor | None = None) -> Tensor:
    """The vector of the last real token: the stop token represents the whole sentence."""
    if real is None:
        return x[:, -1]
    position = torch.arange(x.size(1), device=x.device)
    last = (position * real).argmax(-1)  # (B,)
    return x[torch.arange(x.size(0), device=x.device), last]


@POOLS.register("weighted_mean")
def weighted_mean_token(x: Tensor, real: Tensor | None = None) -> Tensor:
    """The average of the real tokens, where token t counts t times: late ones have read more in a causal model."""
    weight = torch.arange(1, x.size(1) + 1, device=x.device, dtype=x.dtype).expand(x.shape[:2])
    weight = (weight if real is None else weight * real).unsqueeze(-1)  # (B, T, 1)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1.0)


@POOLS.register("root_mean")
def root_mean_token(x: Tensor, real: Tensor | None = None) -> Tensor:
    """The sum of the real tokens over the root of their number."""
    weight = x.new_ones(x.shape[:2]) if real is None else real.to(x.dtype)
    return (x * weight.unsqueeze(-1)).sum(1) / weight.sum(1, keepdim=True).clamp(min=1.0).sqrt()


@POOLS.register("first_two")
def first_two_tokens(x: Tensor, real: Tensor | None = None) -> Tensor:  # noqa: ARG001 - both are always real
    """The vectors of the class token and of the token after it, side by side: (B, 2 D)."""
    return x[:, :2].flatten(1)


@POOLS.register("class_and_mean")
def class_token_and_mean(x: Tensor, real: Tensor | None = None) -> Tensor:
    """The vector of the class token and the average of the others, side by side: (B, 2 D)."""
    return torch.cat((x[:, 0], mean_token(x[:, 1:], None if real is None else real[:, 1:])), dim=-1)


VECTORS = {"first_two": 2, "class_and_mean": 2}  # that a pool puts side by side; all others give one


class ClassToken(nn.Module):
    """A trainable vector put before the sequence, whose output represents all of it."""

    def __init__(self, dim: int):
        super().__init__()
        self.vector = nn.Parameter(torch.randn(dim) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, 1 + T, D)."""
        return torch.cat((self.vector.expand(x.size(0), 1, -1), x), dim=1)


class ExtraTokens(nn.Module):
    """Trainable vectors put before the sequence, for whatever the model learns to keep there."""

    def __init__(self, count: int, dim: int):
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(count, dim) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, count + T, D)."""
        return torch.cat((self.vectors.expand(len(x), -1, -1), x), dim=1)


class UnitLength(nn.Module):
    """x / |x|: the dot product of two such vectors is their cosine."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, D)."""
        return F.normalize(x, dim=-1)


class SequenceOutput(nn.Module):
    """One set of logits for a sequence, from the vector that `pool` selects or averages.

    A `transform` may stand between the two, as BERT's pooler does.
    """

    def __init__(self, dim: int, classes: int, pool: Pool = mean_token, transform: nn.Module | None = None):
        super().__init__()
        self.transform = transform or nn.Identity()
        self.pool, self.linear = pool, nn.Linear(dim, classes)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x (B, T, D), real (B, T) -> (B, C)."""
        return self.linear(self.transform(self.pool(x, real)))


class PooledVector(nn.Module):
    """One vector for a sequence, which may go through a dense layer and be brought to length 1."""

    def __init__(self, pool: Pool = mean_token, unit: nn.Module | None = None, transform: nn.Module | None = None):
        super().__init__()
        self.transform = transform or nn.Identity()
        self.pool, self.unit = pool, unit or nn.Identity()

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x (B, T, D), real (B, T) -> (B, D), or as wide as the dense layer."""
        return self.unit(self.transform(self.pool(x, real)))


class FlattenOutput(nn.Module):
    """One set of logits from all token vectors end to end; the length is fixed, and padding counts as zeros."""

    def __init__(self, length: int, dim: int, classes: int):
        super().__init__()
        self.length, self.linear = length, nn.Linear(length * dim, classes)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x (B, T, D), real (B, T) -> (B, C)."""
        if x.size(1) > self.length:
            raise ShapeError(f"a sequence of {x.size(1)} tokens does not fit an output made for {self.length}")
        x = x if real is None else x.masked_fill(~real.unsqueeze(-1), 0.0)
        return self.linear(F.pad(x, (0, 0, 0, self.length - x.size(1))).flatten(1))
