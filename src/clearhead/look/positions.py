"""Positions: what tells a model the order of its tokens, as numbers to look at.

    vectors       PE(pos), one row for each position: the lecture's heatmap
    products      PE(i) · PE(j), or what the heads add to or make of a score
    by distance   the mean of the products of all pairs that are equally far apart: it falls with the distance
    similarity    the same between vectors of length 1: which positions a learned table holds to be alike

Schemes inside the heads have no vectors. For ALiBi and T5 a product is what is added to the score; rotary positions
turn queries and keys, and a product is what is left of the score of a vector with itself.

    T positions, D width, H heads
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.storing import rounded
from clearhead.nn import PositionScheme

FORMAT = "clearhead-positions-1"
LENGTH = 64  # positions to look at, if not said


@dataclass(frozen=True, eq=False)
class Positions:
    """One scheme of a model."""

    scheme: str
    products: Tensor  # (1 or H, T, T)
    vectors: Tensor | None = None  # (T, D)

    @property
    def by_distance(self) -> Tensor:
        """(1 or H, T): the mean product of a position with the one 0, 1, 2, … before it."""
        pairs = [self.products.diagonal(-distance, -2, -1) for distance in range(self.products.size(-1))]
        return torch.stack([each.mean(-1) for each in pairs], dim=-1)

    @property
    def similarity(self) -> Tensor | None:
        """(T, T): the cosine between the vectors of two positions."""
        if self.vectors is None:
            return None
        unit = F.normalize(self.vectors, dim=-1)
        return unit @ unit.T

    def over_grid(self, grid: tuple[int, int]) -> Tensor:
        """(rows × columns, rows, columns): how alike each patch's position is to that of every other.

        What stands before the patches, as a class token does, is left out.
        """
        rows, columns = grid
        if self.similarity is None or len(self.similarity) < rows * columns:
            raise ShapeError(f"a grid of {rows} × {columns} patches has no vector for each in {self.scheme} positions")
        patches = self.similarity[-rows * columns :, -rows * columns :]
        return patches.reshape(-1, rows, columns)

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {
            "format": FORMAT,
            "scheme": self.scheme,
            "vectors": _maybe(self.vectors),
            "similarity": _maybe(self.similarity),
            "products": rounded(self.products),
            "by_distance": rounded(self.by_distance),
        }


def positions(model: nn.Module, length: int | None = None) -> dict[str, Positions]:
    """Every position scheme of a model, by the name of its module; without a length, all of a learned table."""
    found = {}
    with torch.no_grad():
        for name, part in model.named_modules():
            if isinstance(part, PositionScheme):
                shown = length or part.max_length or LENGTH
                if (products := part.products(shown)) is not None:
                    found[name] = Positions(part.scheme, products, part.vectors(shown))
    if not found:
        raise ProbeError("this model has no positions: it is recurrent, or was trained with model.positions=none")
    return found


def _maybe(tensor: Tensor | None) -> Any:
    return None if tensor is None else rounded(tensor)
