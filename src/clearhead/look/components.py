"""Principal components: the directions of largest variance of a set of vectors.

N vectors, D size, K components
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Components:
    """Orthogonal directions, the one of largest variance first."""

    mean: Tensor  # (D,)
    directions: Tensor  # (K, D), each of length 1
    shares: Tensor  # (K,): of the variance

    def project(self, vectors: Tensor) -> Tensor:
        """(N, D) -> (N, K): the coordinates along the directions."""
        return (vectors - self.mean) @ self.directions.T


def principal_components(vectors: Tensor, count: int) -> Components:
    """vectors (N, D) -> their first components; the largest entry of each direction is positive."""
    most = min(vectors.shape)
    if not 1 <= count <= most:
        raise ShapeError(f"{count} principal components of {tuple(vectors.shape)} numbers; choose from 1 to {most}")
    vectors = vectors.detach().double()
    mean = vectors.mean(0)
    _, singular, directions = torch.linalg.svd(vectors - mean, full_matrices=False)  # (most,), (most, D)
    largest = directions.abs().argmax(-1, keepdim=True)
    directions = directions * directions.gather(-1, largest).sign()
    shares = singular**2 / (singular**2).sum().clamp(min=torch.finfo(singular.dtype).tiny)
    return Components(mean, directions[:count], shares[:count])
