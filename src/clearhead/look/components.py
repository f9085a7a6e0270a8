"""Principal components: the few directions in which a cloud of vectors is spread most.

N vectors, D size, K components
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Components:
    """Directions at right angles to each other, the one with the most spread first."""

    mean: Tensor  # (D,)
    directions: Tensor  # (K, D), each of length 1
    shares: Tensor  # (K,): how much of all the spread each one has

    def project(self, vectors: Tensor) -> Tensor:
        """(N, D) -> (N, K): where each vector lies along each direction."""
        return (vectors - self.mean) @ self.directions.T


def principal_components(vectors: Tensor, count: int) -> Components:
    """vectors (N, D) -> their first components; the largest number of each direction is positive."""
    most = min(vectors.shape)
    if not 1 <= count <= most:
        raise ShapeError(f"{count} principal components of {tuple(vectors.shape)} numbers; choose from 1 to {most}")
    vectors = vectors.detach().double()
    mean = vectors.mean(0)
    _, spread, directions = torch.linalg.svd(vectors - mean, full_matrices=False)  # (most,), (most, D)
    largest = directions.abs().argmax(-1, keepdim=True)
    directions = directions * directions.gather(-1, largest).sign()
    shares = spread**2 / (spread**2).sum().clamp(min=torch.finfo(spread.dtype).tiny)
    return Components(mean, directions[:count], shares[:count])
