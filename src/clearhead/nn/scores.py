"""Alignment scores: how well a query and a key fit, before the softmax.

    dot         q · k
    scaled dot  q · k / √d_k
    cosine      q · k / (|q| |k|)
    additive    wᵀ tanh(W_q q + W_k k)        (Bahdanau's MLP)
    bilinear    qᵀ B k

    B batch, H heads, T queries, S keys, D key size

Each takes q (…, T, D) and k (…, S, D) and gives (…, T, S); so may any function of yours. The scores with
parameters keep a set of their own for each head when `heads` is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Score = Callable[[Tensor, Tensor], Tensor]


def dot(q: Tensor, k: Tensor) -> Tensor:
    """q · k."""
    return q @ k.transpose(-2, -1)


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """q · k / √d_k: keeps the variance of the score near 1 whatever the size of the keys."""
    return dot(q, k) / math.sqrt(k.size(-1))


def cosine(q: Tensor, k: Tensor) -> Tensor:
    """q · k / (|q| |k|), between -1 and 1."""
    return dot(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


class Cosine(nn.Module):
    """Cosine with a learned temperature, since between -1 and 1 the softmax could never become sharp."""

    def __init__(self, heads: int | None = None):
        super().__init__()
        self.sharpness = nn.Parameter(torch.ones(*_of_each(heads), 1, 1))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(…, T, D), (…, S, D) -> (…, T, S)."""
        return self.sharpness * cosine(q, k)


class Additive(nn.Module):
    """wᵀ tanh(W_q q + W_k k): a small network compares query and key, which may differ in size."""

    def __init__(self, query_dim: int, key_dim: int | None = None, hidden: int | None = None, heads: int | None = None):
        super().__init__()
        key_dim = query_dim if key_dim is None else key_dim
        hidden = key_dim if hidden is None else hidden
        self.query = _matrix(query_dim, hidden, heads)
        self.key = _matrix(key_dim, hidden, heads)
        self.weight = _matrix(hidden, 1, heads)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(…, T, Dq), (…, S, Dk) -> (…, T, S)."""
        hidden = torch.tanh((q @ self.query).unsqueeze(-2) + (k @ self.key).unsqueeze(-3))  # (…, T, S, A)
        return (hidden @ self.weight.unsqueeze(-3)).squeeze(-1)


class Bilinear(nn.Module):
    """qᵀ B k: a learned inner product between query and key, which may differ in size."""

    def __init__(self, query_dim: int, key_dim: int | None = None, heads: int | None = None):
        super().__init__()
        self.weight = _matrix(query_dim, query_dim if key_dim is None else key_dim, heads)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(…, T, Dq), (…, S, Dk) -> (…, T, S)."""
        return dot(q @ self.weight, k)


def _of_each(heads: int | None) -> tuple[int, ...]:
    return () if heads is None else (heads,)


def _matrix(rows: int, columns: int, heads: int | None) -> nn.Parameter:
    """A trainable matrix, or one for each head, started so that its output has the size of its input."""
    return nn.Parameter(torch.randn(*_of_each(heads), rows, columns) / math.sqrt(rows))
