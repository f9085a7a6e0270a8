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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.storing import rounded
from clearhead.nn import Alibi, LearnedPositions, Rotary, SinusoidalPositions, T5Relative

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
    """Every position scheme of a model, by its name there; without a length, all of a learned table."""
    with torch.no_grad():
        found = {name: LOOKS[type(part)](part, length) for name, part in model.named_modules() if type(part) in LOOKS}
    if not found:
        raise ProbeError("this model has no positions: it is recurrent, or was trained with model.positions=none")
    return found


def _sinusoidal(part: SinusoidalPositions, length: int | None) -> Positions:
    return _of_vectors("sinusoidal", part.encode(length or LENGTH))


def _learned(part: LearnedPositions, length: int | None) -> Positions:
    return _of_vectors("learned", part.table.weight.detach()[:length].clone())


def _of_vectors(scheme: str, vectors: Tensor) -> Positions:
    return Positions(scheme, (vectors @ vectors.T).unsqueeze(0), vectors)


def _rotary(part: Rotary, length: int | None) -> Positions:
    same = torch.ones(1, 1, length or LENGTH, part.waves.dim) / part.waves.dim**0.5  # (1, 1, T, D), each of length 1
    turned = part.rotate(same, 0)[0, 0]  # (T, D)
    return Positions("rotary", (turned @ turned.T).unsqueeze(0))


def _added(scheme: str) -> Callable[[Any, int | None], Positions]:
    def look(part: Alibi | T5Relative, length: int | None) -> Positions:
        place = torch.arange(length or LENGTH)
        return Positions(scheme, part.bias(place, place))

    return look


LOOKS: dict[type[nn.Module], Callable[[Any, int | None], Positions]] = {
    SinusoidalPositions: _sinusoidal,
    LearnedPositions: _learned,
    Rotary: _rotary,
    Alibi: _added("alibi"),
    T5Relative: _added("t5"),
}


def _maybe(tensor: Tensor | None) -> Any:
    return None if tensor is None else rounded(tensor)
