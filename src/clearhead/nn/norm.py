"""Normalisation: every token vector is brought to mean β and spread γ, so that training stays stable.

    LayerNorm(z; γ, β) = γ (z - μ_z) / σ_z + β        over the features of one token
    RMSNorm(z; γ)      = γ z / √(mean of z²)          the same without the mean
    BatchNorm                                          over the tokens of the batch, for each feature

LayerNorm and RMSNorm are torch's own, which are fused; `layer_norm` and `rms_norm` are their equations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import LayerNorm, RMSNorm

__all__ = ["BatchNorm", "LayerNorm", "MakeNorm", "RMSNorm", "layer_norm", "rms_norm"]

MakeNorm = Callable[[int], nn.Module]  # width -> a norm of that width


def layer_norm(z: Tensor, gain: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """γ (z - μ) / σ + β over the last axis; eps keeps a constant vector from dividing by zero."""
    mean = z.mean(-1, keepdim=True)
    variance = ((z - mean) ** 2).mean(-1, keepdim=True)
    return gain * (z - mean) / torch.sqrt(variance + eps) + shift


def rms_norm(z: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    """γ z / √(mean of z²) over the last axis."""
    return gain * z / torch.sqrt((z**2).mean(-1, keepdim=True) + eps)


class BatchNorm(nn.Module):
    """For contrast: normalises each feature over all tokens of the batch, so that tokens influence each other."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self.norm(x.flatten(0, -2)).view_as(x)
