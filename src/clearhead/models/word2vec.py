"""word2vec: words that appear in the same contexts get similar vectors (skip-gram).

    P{b | a} = exp(v_a · u_b) / Σ_i exp(v_a · u_i)

The lecture writes v for both; as in the paper, a word has one vector v as a centre and another, u, as the context of
a centre, because hardly any word is its own neighbour. The word vectors are v. The sum over all words is exact and
slow: negative sampling instead learns to tell the true context from K words of noise.

Trained vectors answer which words are near, and what king - man + woman is, by one of two measures:

    dot       u · v
    cosine    u · v / (|u| |v|): the lengths of the vectors do not count

    B pairs, K noise words, V vocabulary, D width
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ConfigError, ShapeError, TextError, nearest
from clearhead.models.build import Model


class SkipGram(Model):
    """Two vectors for each word, initialised as in word2vec: small centres, contexts of zeros."""

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.center, self.context = nn.Embedding(size, dim), nn.Embedding(size, dim)
        nn.init.uniform_(self.center.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.context.weight)

    @property
    def vectors(self) -> Tensor:
        """(V, D)."""
        return self.center.weight

    def forward(self, center: Tensor) -> Tensor:
        """(B,) -> the score z_b = v_a · u_b of every word as its context, (B, V)."""
        return self.center(center) @ self.context.weight.T

    def probabilities(self, word: int | Tensor) -> Tensor:
        """One word a, or (B,) of them -> P{b | a} for every b, (V,) or (B, V)."""
        return self(torch.as_tensor(word, device=self.vectors.device)).softmax(-1)

    def full_softmax_loss(self, center: Tensor, context: Tensor) -> Tensor:
        """(B,), (B,) -> the mean of -log P{context | center}."""
        return F.cross_entropy(self(center), context)

    def negative_sampling_loss(self, center: Tensor, context: Tensor, negatives: Tensor) -> Tensor:
        """(B,), (B,), (B, K) -> the mean of -log σ(v · u_context) - Σ_k log σ(-v · u_k)."""
        v = self.center(center)  # (B, D)
        true = (v * self.context(context)).sum(-1)  # (B,)
        noise = (self.context(negatives) @ v.unsqueeze(-1)).squeeze(-1)  # (B, K)
        return -(F.logsigmoid(true) + F.logsigmoid(-noise).sum(-1)).mean()


# --- asking word vectors ---

Vectors = NDArray[np.floating[Any]]


def unit_length(vectors: Vectors) -> Vectors:
    """The cosine is the dot product of vectors of length 1; a vector of zeros stays one."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)


MEASURES: dict[str, Callable[[Vectors], Vectors]] = {"cosine": unit_length, "dot": lambda vectors: vectors}


def neighbours(
    vectors: ArrayLike | Tensor, words: Sequence[str], word: str, count: int = 10, measure: str = "cosine"
) -> list[tuple[str, float]]:
    """The words nearest to a word, best first, and how near; the word itself is left out."""
    table = _measured(vectors, words, measure)
    (row,) = _rows(words, [word])
    return _best(table, words, table[row], count, without=[row])


def analogy(
    vectors: ArrayLike | Tensor, words: Sequence[str], a: str, b: str, c: str, count: int = 10, measure: str = "cosine"
) -> list[tuple[str, float]]:
    """The words nearest to v_a - v_b + v_c: king - man + woman gives queen. The three themselves are left out."""
    table = _measured(vectors, words, measure)
    rows = _rows(words, [a, b, c])
    wanted = table[rows[0]] - table[rows[1]] + table[rows[2]]
    return _best(table, words, MEASURES[measure](wanted), count, without=rows)


def _measured(vectors: ArrayLike | Tensor, words: Sequence[str], measure: str) -> Vectors:
    """(V, D), such that a dot product is the measure."""
    if measure not in MEASURES:
        raise ConfigError(f"unknown measure {measure}; {nearest(measure, MEASURES)}")
    table = np.asarray(vectors.detach().cpu() if isinstance(vectors, Tensor) else vectors)
    if table.ndim != 2 or len(table) != len(words):
        raise ShapeError(f"{len(words)} words do not fit vectors of shape {table.shape}")
    return MEASURES[measure](table)


def _rows(words: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where each wanted word stands, or which word was meant."""
    rows = {word: row for row, word in enumerate(words)}
    for word in wanted:
        if word not in rows:
            close = difflib.get_close_matches(word, words, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TextError(f"{word!r} is not among the {len(words)} words of this model{hint}")
    return [rows[word] for word in wanted]


def _best(
    table: Vectors, words: Sequence[str], wanted: Vectors, count: int, without: Sequence[int]
) -> list[tuple[str, float]]:
    scores = table @ wanted  # (V,)
    order = [int(row) for row in np.argsort(-scores, kind="stable") if row not in without]
    return [(words[row], float(scores[row])) for row in order[:count]]
