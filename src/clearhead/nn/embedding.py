"""Embeddings: a token id chooses a row of a matrix, which is the one-hot code of the id times that matrix.

    X = one_hot(ids) W_emb                 (B, T, N) × (N, D) -> (B, T, D)

The matrix is learned with the model, or starts from word vectors learned elsewhere.

    B batch, T tokens, N tokens of the vocabulary, D width
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ShapeError


def one_hot(ids: Tensor, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """(…) ids -> (…, N): 1 at the id, 0 elsewhere."""
    return F.one_hot(ids, size).to(dtype)


class TokenEmbedding(nn.Module):
    """A trainable row for each token, multiplied by `scale` (√D in the paper). The row of `pad` stays zero."""

    def __init__(self, size: int, dim: int, *, pad: int | None = None, scale: float = 1.0):
        super().__init__()
        self.size, self.dim, self.scale = size, dim, scale
        self.table = nn.Embedding(size, dim, padding_idx=pad)
        nn.init.normal_(self.table.weight, std=dim**-0.5)
        self._clear_pad()

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, D)."""
        return self.table(ids).mul_(self.scale)  # in place: the rows are copies

    def start_from(self, vectors: Tensor) -> Self:
        """Copy word vectors (N, D) trained elsewhere, for instance by word2vec; training continues from them."""
        if vectors.shape != self.table.weight.shape:
            have, want = tuple(vectors.shape), tuple(self.table.weight.shape)
            raise ShapeError(f"word vectors of shape {have} do not fit an embedding of shape {want}")
        with torch.no_grad():
            self.table.weight.copy_(vectors)
        self._clear_pad()
        return self

    def _clear_pad(self) -> None:
        if self.table.padding_idx is not None:
            with torch.no_grad():
                self.table.weight[self.table.padding_idx] = 0.0
