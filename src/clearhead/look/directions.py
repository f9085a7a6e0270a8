"""Directions: what no single unit follows, many together may.

A layer is free to spread a feature of the text over all its units. The direction that follows it best is a linear
map of the units to one number, found by least squares on half of the text; how well it follows is the correlation
with the feature on the other half, so that it cannot have been learned by heart.

    w = (XᵀX + λ I)⁻¹ Xᵀy          X units, y feature, each less its mean

    N tokens, U units
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError, nearest
from clearhead.look.capture import capture
from clearhead.look.cells import Window, unit_layers

RIDGE = 0.01  # λ, as a share of a unit's mean variance: keeps units that say the same from pulling against each other


@dataclass(frozen=True, eq=False)
class Direction:
    """A number that can be read off a layer."""

    layer: str
    feature: str
    weights: Tensor  # (U,)
    constant: float
    correlation: float  # with the feature, on text that it was not fitted to

    @torch.no_grad()
    def read(self, model: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
        """What the direction says the feature is at each token of a batch: (B, T)."""
        with capture(model, self.layer, stop=True) as seen:
            model(*inputs)
        return seen[self.layer].cpu().double() @ self.weights + self.constant


@torch.no_grad()
def direction(model: nn.Module, windows: Iterable[Window], layer: str, feature: str) -> Direction:
    """Fit to the first, third, … batch of windows, and measure on the second, fourth, …"""
    if layer not in unit_layers(model):
        raise ProbeError(f"{layer} names no layer of units; {nearest(layer, unit_layers(model))}")
    halves = (_Moments(), _Moments())
    for number, (inputs, known) in enumerate(windows):
        if feature not in known:
            raise ProbeError(f"the windows have no feature {feature}; {nearest(feature, known)}")
        with capture(model, layer, stop=True) as seen:
            model(*inputs)
        halves[number % 2].add(seen[layer].flatten(0, 1), known[feature].flatten())
    fitted, held_out = halves
    if held_out.count == 0:
        raise ShapeError("a direction is fitted to one half of the windows and measured on the other; give two or more")
    weights = fitted.least_squares()
    constant = float(fitted.y - fitted.x @ weights) / fitted.count
    return Direction(layer, feature, weights, constant, held_out.correlation(weights))


class _Moments:
    """Sums over tokens, of which means, variances and correlations are made."""

    def __init__(self) -> None:
        self.count = 0
        self.x = self.xx = self.xy = self.y = self.yy = torch.zeros((), dtype=torch.float64)

    def add(self, activations: Tensor, values: Tensor) -> None:
        """N more tokens: activations (N, U), values (N,)."""
        x, y = activations.cpu().double(), values.double()
        self.count += len(x)
        self.x, self.xx, self.xy = self.x + x.sum(0), self.xx + x.T @ x, self.xy + y @ x  # (U,), (U, U), (U,)
        self.y, self.yy = self.y + y.sum(), self.yy + y @ y

    def least_squares(self) -> Tensor:
        """(U,)."""
        covariance, shared = self._around_means()
        ridge = RIDGE * covariance.diagonal().mean() * torch.eye(len(shared), dtype=shared.dtype)
        weights: Tensor = torch.linalg.solve(covariance + ridge, shared)
        return weights

    def correlation(self, weights: Tensor) -> float:
        """Of X w with y; 0 where either never changes."""
        covariance, shared = self._around_means()
        spread = (weights @ covariance @ weights) * (self.yy - self.y**2 / self.count)
        return float(weights @ shared / spread.sqrt()) if spread > 0 else 0.0

    def _around_means(self) -> tuple[Tensor, Tensor]:
        """XᵀX (U, U) and Xᵀy (U,) of what is left when the means are taken away."""
        return self.xx - torch.outer(self.x, self.x) / self.count, self.xy - self.x * self.y / self.count
