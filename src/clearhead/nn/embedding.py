"""Embeddings: from token ids and image patches to vectors, and from vectors back to logits.

A token id chooses a row of a matrix, which is the one-hot code of the id times that matrix. It is learned with the
model, or starts from word vectors learned elsewhere, and may be the matrix of the output too.

    X = one_hot(ids) W_emb                 (B, T, N) × (N, D) -> (B, T, D)
    logits = X W_out                       (B, T, D) × (D, C) -> (B, T, C)

An image becomes a sequence by cutting it into squares, each flattened and projected to a token. This equals a
convolution whose stride is the patch size (tested).

    (C, 224, 224) -> 14 × 14 patches of 16 · 16 · C numbers -> (196, D)

    B batch, T tokens, N tokens of the vocabulary or patches, D width, C classes, words or channels, P patch size
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ShapeError
from clearhead.nn.feedforward import Activation
from clearhead.nn.norm import Dropout, MakeNorm, NoNorm


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


class NgramEmbedding(nn.Module):
    """Adds to each token a vector for every n-gram that ends with it, n = 2 … `longest`, as fastText does.

    The ids of an n-gram are hashed to one of `rows` rows, so that no list of n-grams is needed: a model that has seen
    little text knows `How many` or the ending `-ness` without having to find them by attention.
    """

    def __init__(self, longest: int, dim: int, rows: int = 8192):
        super().__init__()
        self.rows = rows
        self.tables = nn.ModuleList(nn.Embedding(rows, dim) for _ in range(2, longest + 1))
        for table in self.tables:
            nn.init.zeros_(table.weight)  # type: ignore[arg-type]

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        """(B, T) ids and their vectors (B, T, D) -> (B, T, D)."""
        _, *ngrams = hashed_ngrams(ids, 1 + len(self.tables), self.rows)
        for table, numbers in zip(self.tables, ngrams, strict=True):
            x = x + table(numbers)
        return x


def hashed_ngrams(ids: Tensor, longest: int, rows: int) -> Iterator[Tensor]:
    """(B, T) ids -> for n = 1 … `longest`, (B, T): the row, of `rows`, of the n-gram that ends with each token."""
    hashed = ids
    for n in range(1, longest + 1):
        if n > 1:
            earlier = F.pad(ids, (n - 1, 0))[:, : ids.shape[1]]  # (B, T): the token n - 1 places before each
            hashed = hashed * 1_000_003 + earlier + n
        yield (hashed ^ (hashed >> 16)) % rows


class FeatureEmbedding(nn.Module):
    """Adds to each word the sum of the vectors of its features; feature 0 is none."""

    def __init__(self, rows: int, dim: int, dropout: float = 0.0):
        super().__init__()
        self.table = nn.Embedding(rows, dim, padding_idx=0)
        nn.init.normal_(self.table.weight, std=0.1)
        with torch.no_grad():
            self.table.weight[0] = 0.0
        self.dropout = Dropout(dropout)

    def forward(self, features: Tensor, x: Tensor) -> Tensor:
        """(B, T, F) numbers of features and the vectors (B, T, D) of the words -> (B, T, D)."""
        return x + self.dropout(self.table(features).sum(-2))


class SegmentEmbedding(nn.Module):
    """Adds to each token the vector of its segment: the number of separators before it, as BERT counts two texts."""

    def __init__(self, count: int, dim: int, separator: int | None = None):
        super().__init__()
        self.separator = -1 if separator is None else separator
        self.table = nn.Embedding(count, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        """(B, T) ids and their vectors (B, T, D) -> (B, T, D)."""
        ends = (ids == self.separator).long()
        segment = ends.cumsum(1) - ends  # (B, T): a separator belongs to the text that it ends
        return x + self.table(segment.clamp(max=self.table.num_embeddings - 1))


class OneSegment(nn.Module):
    """The text is one segment, and nothing is added."""

    def forward(self, _ids: Tensor, x: Tensor) -> Tensor:
        return x


class Transform(nn.Module):
    """Norm(φ(x W + b)): a dense layer between a stack and its output."""

    def __init__(self, dim: int, out: int, activation: Activation, norm: MakeNorm = NoNorm):
        super().__init__()
        self.linear, self.activation, self.norm = nn.Linear(dim, out), activation, norm(out)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, out)."""
        return self.norm(self.activation(self.linear(x)))


class SoftCap(nn.Module):
    """C tanh(z / C): logits that never leave -C … C."""

    def __init__(self, cap: float):
        super().__init__()
        self.cap = cap

    def forward(self, logits: Tensor) -> Tensor:
        return self.cap * torch.tanh(logits / self.cap)


class TokenOutput(nn.Module):
    """One set of logits for each token; `tied` shares the embedding's matrix, as in the paper.

    A `transform` may stand before the matrix, and a `cap` after it.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        bias: bool = True,
        tied: nn.Embedding | None = None,
        transform: nn.Module | None = None,
        cap: nn.Module | None = None,
    ):
        super().__init__()
        self.transform, self.cap = transform or nn.Identity(), cap or nn.Identity()
        self.linear = nn.Linear(dim, classes, bias=bias)
        if tied is not None:
            if tied.weight.shape != self.linear.weight.shape:
                have, want = tuple(tied.weight.shape), tuple(self.linear.weight.shape)
                raise ShapeError(f"an embedding of shape {have} cannot be tied to an output of shape {want}")
            self.linear.weight = tied.weight

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, C)."""
        return self.cap(self.linear(self.transform(x)))

    @property
    def is_linear(self) -> bool:
        """Whether it is the matrix alone, as native code computes it."""
        return type(self.transform) is nn.Identity and type(self.cap) is nn.Identity


def cut_patches(images: Tensor, patch: int) -> Tensor:
    """(B, C, height, width) -> (B, N, P × P × C): rows of patches from the top left."""
    height, width = images.shape[-2:]
    if height % patch or width % patch:
        raise ShapeError(f"patches of {patch} × {patch} do not divide an image of {height} × {width}")
    squares = images.unflatten(-1, (-1, patch)).unflatten(-3, (-1, patch))  # (B, C, rows, P, columns, P)
    return squares.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


class PatchEmbedding(nn.Module):
    """Projects each patch with one matrix that all patches share."""

    def __init__(self, patch: int, channels: int, dim: int, *, bias: bool = True):
        super().__init__()
        self.patch, self.channels = patch, channels
        self.linear = nn.Linear(patch * patch * channels, dim, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, N, D)."""
        if images.size(1) != self.channels:
            raise ShapeError(f"the image has {images.size(1)} channels and the model was made for {self.channels}")
        return self.linear(cut_patches(images, self.patch))

    def filters(self) -> Tensor:
        """(D, P, P, C): the pattern that each number of a patch's vector looks for."""
        return self.linear.weight.detach().reshape(-1, self.patch, self.patch, self.channels)
