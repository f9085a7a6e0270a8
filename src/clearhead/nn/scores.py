"""Alignment scores: how well a query and a key fit, before the softmax.

    dot         q · k
    scaled dot  q · k / √d_k
    cosine      q · k / (|q| |k|)
    additive    wᵀ tanh(W_q q + W_k k)        (Bahdanau's MLP)
    bilinear    qᵀ B k

    H heads, T queries, S keys, D key size

A score is any callable from q (…, T, D) and k (…, S, D) to (…, T, S). Scores with parameters have one set per head
when `heads` is given. A score may say two things about itself, both optional:

    equation            its text, shown by `look --view steps`
    dot_scale(key_dim)  the factor, if the score is a multiple of q · k: only then fused kernels can compute it

A new score is registered under the name that `model.score` takes:

    @SCORES.register("mine")
    class Mine(nn.Module):
        equation = "s_j = …"
        def __init__(self, key_dim: int, heads: int): ...
        def forward(self, q, k): ...
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.registry import Registry

Score = Callable[[Tensor, Tensor], Tensor]
MakeScore = Callable[[int, int], Score]  # key size, heads -> score

SCORES: Registry[MakeScore] = Registry("score")


def score_equation(score: Score) -> str | None:
    """The text of a score's equation, if it has one."""
    text: str | None = getattr(score, "equation", None)
    return text


def dot_scale(score: Score, key_dim: int) -> float | None:
    """The c of score = c · (q · k), or None for a score that is no multiple of the dot product."""
    scale: Callable[[int], float] | None = getattr(score, "dot_scale", None)
    return None if scale is None else scale(key_dim)


def dot(q: Tensor, k: Tensor) -> Tensor:
    """q · k."""
    return q @ k.transpose(-2, -1)


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """q · k / √d_k: the variance of the score stays near 1 for any key size."""
    return dot(q, k) / math.sqrt(k.size(-1))


def cosine(q: Tensor, k: Tensor) -> Tensor:
    """q · k / (|q| |k|), between -1 and 1."""
    return dot(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


class DotScore:
    """c q · k: the dot product with a scale of its own."""

    equation = "s_j = c q · k_j"

    def __init__(self, scale: float):
        self.scale = scale

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        return self.scale * dot(q, k)

    def dot_scale(self, _key_dim: int) -> float:
        return self.scale


class CappedScore(nn.Module):
    """C tanh(s / C): a score s that never leaves -C … C."""

    def __init__(self, score: Score, cap: float):
        super().__init__()
        self.score, self.cap = score, cap
        self.equation = "s_j = C tanh(r_j / C),  " + (score_equation(score) or "").replace("s_j", "r_j")

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.cap * torch.tanh(self.score(q, k) / self.cap)


class CosineScore(nn.Module):
    """Cosine with a learned temperature: between -1 and 1 the softmax could never become sharp."""

    equation = "s_j = τ q · k_j / (|q| |k_j|)"

    def __init__(self, heads: int | None = None):
        super().__init__()
        self.sharpness = nn.Parameter(torch.ones(*_per_head(heads), 1, 1))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.sharpness * cosine(q, k)


class AdditiveScore(nn.Module):
    """wᵀ tanh(W_q q + W_k k): a small network compares query and key, which may differ in size."""

    equation = "s_j = wᵀ tanh(W_q q + W_k k_j)"

    def __init__(self, query_dim: int, key_dim: int | None = None, hidden: int | None = None, heads: int | None = None):
        super().__init__()
        key_dim = query_dim if key_dim is None else key_dim
        hidden = key_dim if hidden is None else hidden
        self.query = _matrix(query_dim, hidden, heads)
        self.key = _matrix(key_dim, hidden, heads)
        self.weight = _matrix(hidden, 1, heads)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        hidden = torch.tanh((q @ self.query).unsqueeze(-2) + (k @ self.key).unsqueeze(-3))  # (…, T, S, hidden)
        return (hidden @ self.weight.unsqueeze(-3)).squeeze(-1)


class BilinearScore(nn.Module):
    """qᵀ B k: a learned inner product of query and key, which may differ in size."""

    equation = "s_j = qᵀ B k_j"

    def __init__(self, query_dim: int, key_dim: int | None = None, heads: int | None = None):
        super().__init__()
        self.weight = _matrix(query_dim, query_dim if key_dim is None else key_dim, heads)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return dot(q @ self.weight, k)


def _describe(score: Score, equation: str, dot_scale: Callable[[int], float] | None = None) -> None:
    """Let a function say what a class says by `equation` and `dot_scale`."""
    vars(score).update(equation=equation, dot_scale=dot_scale)


_describe(dot, "s_j = q · k_j", lambda _key_dim: 1.0)
_describe(scaled_dot, "s_j = q · k_j / √d_k", lambda key_dim: key_dim**-0.5)
_describe(cosine, "s_j = q · k_j / (|q| |k_j|)")

SCORES.register("dot")(lambda _key_dim, _heads: dot)
SCORES.register("scaled_dot")(lambda _key_dim, _heads: scaled_dot)
SCORES.register("additive")(lambda key_dim, heads: AdditiveScore(key_dim, heads=heads))
SCORES.register("bilinear")(lambda key_dim, heads: BilinearScore(key_dim, heads=heads))
SCORES.register("cosine")(lambda _key_dim, heads: CosineScore(heads))


def _per_head(heads: int | None) -> tuple[int, ...]:
    return () if heads is None else (heads,)


def _matrix(rows: int, columns: int, heads: int | None) -> nn.Parameter:
    """A trainable matrix, or one per head, scaled so that its output has the variance of its input."""
    return nn.Parameter(torch.randn(*_per_head(heads), rows, columns) / math.sqrt(rows))
