"""What 1 / √d_k does before anything is learned.

The entries of a query and a key are about as large as 1, so the variance of q · k is d_k. Without the scale, the
softmax of large scores gives nearly all the weight to one key, and there its gradient all but vanishes: attention
that has decided before it has learned, and learns slowly. With it the variance is 1 whatever the size.

    D key size (d_k), S keys, N queries
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.attention import softmax
from clearhead.nn.scores import Score, dot, scaled_dot

FORMAT = "clearhead-scaling-1"
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Sharpness:
    """How attention at initialisation behaves with keys of one size, each a mean over random queries."""

    size: int  # d_k
    variance: float  # of the scores
    largest: float  # weight of a query; 1 / S if it looks everywhere alike
    evenness: float  # entropy of its weights over log S: 1 = all alike, 0 = one key has all
    gradient: float  # length of ∂ weights / ∂ scores: how much the weights can learn


@dataclass(frozen=True)
class Scaling:
    """The same queries and keys, with the scale and without it."""

    keys: int
    scaled: list[Sharpness]
    plain: list[Sharpness]

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {"format": FORMAT, **asdict(self)}


def scaling(sizes: Sequence[int] = SIZES, keys: int = 32, queries: int = 512, seed: int = 0) -> Scaling:
    """Draw queries and keys of each size from the normal distribution, and attend with both scores."""
    if keys < 2:
        raise ShapeError(f"with keys={keys} every query looks at the same; choose at least 2")
    draws = [_draw(size, keys, queries, seed) for size in sizes]
    return Scaling(
        keys,
        scaled=[sharpness(q, k, scaled_dot) for q, k in draws],
        plain=[sharpness(q, k, dot) for q, k in draws],
    )


def sharpness(q: Tensor, k: Tensor, score: Score) -> Sharpness:
    """q (N, D), k (N, S, D): keys of its own for each query."""
    scores = score(q.unsqueeze(1), k).squeeze(1)  # (N, S)
    weights = softmax(scores)
    entropy = torch.special.entr(weights).sum(-1)  # (N,)
    return Sharpness(
        size=q.size(-1),
        variance=float(scores.var()),
        largest=float(weights.amax(-1).mean()),
        evenness=float(entropy.mean()) / math.log(k.size(-2)),
        gradient=float(_jacobian(weights).norm(dim=(-2, -1)).mean()),
    )


def _jacobian(weights: Tensor) -> Tensor:
    """∂ a_i / ∂ s_j = a_i (1[i = j] - a_j): (N, S) -> (N, S, S)."""
    return torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)


def _draw(size: int, keys: int, queries: int, seed: int) -> tuple[Tensor, Tensor]:
    """Queries (N, D) and keys (N, S, D), each number as large as 1 on average."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(queries, size, generator=random), torch.randn(queries, keys, size, generator=random)
