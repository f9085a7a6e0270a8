"""word2vec: words that appear in the same contexts get similar vectors (skip-gram).

    P{b | a} = exp(v_a · u_b) / Σ_i exp(v_a · u_i)

The lecture writes v for both; as in the paper, a word has one vector v as a centre and another, u, as the context of
a centre, because hardly any word is its own neighbour. The word vectors are v. The sum over all words is exact and
slow: negative sampling instead learns to tell the true context from K words of noise.

    B pairs, K noise words, V vocabulary, D width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.models.base import Model


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
