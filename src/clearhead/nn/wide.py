"""A linear classifier beside a network: what single tokens and pairs of them say about the label.

From few texts a network learns little that a linear model would not know, and the two err on different texts: their
logits are added ("wide and deep", Cheng et al., 2016). The linear weights need no training steps. They minimise

    |X W - Y|² + λ |W|²        X (N, R): counts of n-grams / √T,  Y (N, C): 1 for the label, -1 for the others

which conjugate gradients do in a moment, since X is nearly empty. How much they count beside the network, and how sure
the two are together, is what fits the validation part best.

    N texts, B batch, T tokens, R rows of hashed n-grams, C classes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from clearhead.nn.embedding import hashed_ngrams
from clearhead.nn.pooling import Pool, SequenceOutput, mean_token, root_mean_token

LONGEST = 2  # tokens of an n-gram
STRENGTHS = (0.4, 1.5, 6.0)  # λ: few texts with several labels need a small one, many with two a large one
STEPS, NEAR = 100, 1e-10  # of conjugate gradients, at the most; the share of the squared residual that ends them
FACTORS = torch.tensor([0.0, 0.5, 1, 2, 4, 6, 8, 12])  # of the linear logits, beside those of the network
TEMPERATURES = torch.tensor([0.7, 0.8, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10])  # that the sum of the two is divided by
TEXTS = 1024  # that are read together


class WideOutput(SequenceOutput):
    """One set of logits for a sequence: those of a linear model of its n-grams are added to those of its vectors.

    In training mode nothing is added: a network that learned only what the linear model gets wrong would learn from
    very few texts.
    """

    table: Tensor  # (R, C)

    def __init__(
        self, dim: int, classes: int, pool: Pool = mean_token, transform: nn.Module | None = None, *, rows: int
    ):
        super().__init__(dim, classes, pool, transform)
        self.register_buffer("table", torch.zeros(rows, classes))

    def forward(self, x: Tensor, real: Tensor, ids: Tensor) -> Tensor:  # type: ignore[override]  # reads the ids too
        """x (B, T, D), real tokens and ids (B, T) -> (B, C)."""
        logits = super().forward(x, real)
        return logits if self.training else logits + linear_logits(self.table, real, ids)


def linear_logits(table: Tensor, real: Tensor, ids: Tensor) -> Tensor:
    """The linear model (R, C) of texts, real tokens and ids (B, T) -> (B, C)."""
    votes = [F.embedding(numbers, table) for numbers in hashed_ngrams(ids, LONGEST, len(table))]
    return root_mean_token(torch.stack(votes).sum(0), real)


def best_mixture(losses: Tensor) -> tuple[int, float, float]:
    """Of `mixture_losses` of the validation part for some tables (S, F, K): the best table, factor and temperature."""
    table, factor, temperature = torch.unravel_index(losses.argmin(), losses.shape)
    return int(table), float(FACTORS[factor]), float(TEMPERATURES[temperature])


def mixture_losses(network: Tensor, linear: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """(F, K): the summed loss of some texts for each of `FACTORS` and `TEMPERATURES`; logits (B, C), labels (B,).

    With `smoothing`, few texts that are all labelled right are no reason to be certain.
    """
    mixed = network + FACTORS.view(-1, 1, 1, 1) * linear  # (F, 1, B, C)
    logits = (mixed / TEMPERATURES.view(-1, 1, 1)).flatten(0, 2)  # (F K B, C)
    repeated = labels.repeat(len(FACTORS) * len(TEMPERATURES))
    losses = F.cross_entropy(logits, repeated, reduction="none", label_smoothing=smoothing)
    return losses.view(len(FACTORS), len(TEMPERATURES), len(labels)).sum(-1)


def solve_tables(texts: Sequence[Sequence[int]], labels: Tensor, rows: int, classes: int) -> list[Tensor]:
    """The linear model (R, C) of texts with labels (N,) for each of `STRENGTHS`.

    Its logits are near 1 for the right label, -1 for the others.
    """
    counts, right = NgramCounts.of(texts, rows), 2.0 * F.one_hot(labels, classes) - 1
    return [ridge_regression(counts, right, strength) for strength in STRENGTHS]


@dataclass(frozen=True)
class NgramCounts:
    """X (N, R) as lists of what is not zero, once by text and once by row."""

    rows: Tensor  # of each n-gram, text after text
    texts: Tensor  # of each n-gram, row after row
    weights: tuple[Tensor, Tensor]  # of each n-gram, in both orders
    starts: tuple[Tensor, Tensor]  # (N,) and (R,): where the n-grams of a text and of a row begin

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]], rows: int) -> NgramCounts:
        """Count the n-grams of some texts."""
        found = torch.cat([_hashed(texts[first : first + TEXTS], rows) for first in range(0, len(texts), TEXTS)])
        lengths = torch.tensor([len(text) for text in texts])
        each = torch.arange(len(texts)).repeat_interleave(LONGEST * lengths)
        weights = lengths.clamp(min=1).float().rsqrt()[each]
        order = found.argsort(stable=True)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), LONGEST * lengths.cumsum(0)[:-1]])
        row_starts = torch.searchsorted(found[order], torch.arange(rows))
        return cls(found, each[order], (weights, weights[order]), (starts, row_starts))

    def times(self, table: Tensor) -> Tensor:
        """X W: (R, C) -> (N, C)."""
        return F.embedding_bag(self.rows, table, self.starts[0], mode="sum", per_sample_weights=self.weights[0])

    def transposed_times(self, values: Tensor) -> Tensor:
        """Xᵀ Z: (N, C) -> (R, C)."""
        return F.embedding_bag(self.texts, values, self.starts[1], mode="sum", per_sample_weights=self.weights[1])


def _hashed(texts: Sequence[Sequence[int]], rows: int) -> Tensor:
    """The rows of all n-grams of some texts, text after text."""
    ids = pad_sequence([torch.tensor(text, dtype=torch.int64) for text in texts], batch_first=True)  # (B, T)
    real = torch.arange(ids.size(1)) < torch.tensor([len(text) for text in texts]).unsqueeze(1)
    return torch.stack(list(hashed_ngrams(ids, LONGEST, rows)), -1)[real].flatten()


def ridge_regression(counts: NgramCounts, right: Tensor, strength: float) -> Tensor:
    """W = Xᵀ A (R, C), where (X Xᵀ + λ) A = Y (N, C) is solved by conjugate gradients, each class by itself."""
    solution, residual = torch.zeros_like(right), right.clone()
    direction, size = residual.clone(), residual.square().sum(0)  # (N, C) and (C,)
    enough = NEAR * size
    for _ in range(STEPS):
        if (size <= enough).all():
            break
        image = counts.times(counts.transposed_times(direction)) + strength * direction
        step = size / (direction * image).sum(0).clamp(min=1e-30)
        solution += step * direction
        residual -= step * image
        before, size = size, residual.square().sum(0)
        direction = residual + size / before.clamp(min=1e-30) * direction
    return counts.transposed_times(solution)
