"""Native forms: what a part tells an engine that computes without torch.

A part with a native form describes itself in plain numbers and matrices; the engine decides whether it has code for
that. A part without one (`native_form` missing, or returning None) runs with torch, and nothing else changes.

    norm           native_form() -> NormForm
    feed-forward   native_form() -> FeedForwardForm
    residual       native_form() -> ResidualForm
    positions      native_form(length) -> PositionForm        inside the heads, see `RelativePositions`
    score          dot_scale(key_dim) -> float                see `scores.dot_scale`

    T positions, D width, K key size, H heads
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn


@dataclass(frozen=True)
class NormForm:
    """gain · normalised(x) + shift."""

    kind: str  # "none", "layer" or "rms"
    gain: Tensor | None = None  # (D,)
    shift: Tensor | None = None  # (D,)
    eps: float = 0.0


@runtime_checkable
class NativeNorm(Protocol):
    """A norm with a native form."""

    def native_form(self) -> NormForm: ...


@dataclass(frozen=True)
class FeedForwardForm:
    """outer(φ(inner(x))), or outer(φ(gate(x)) · inner(x))."""

    activation: str  # "relu", "gelu" or "silu"
    inner: nn.Linear
    outer: nn.Linear
    gate: nn.Linear | None = None


@dataclass(frozen=True)
class ResidualForm:
    """after(x + inside(sublayer(before(x)))); None = no norm there."""

    before: nn.Module | None = None
    inside: nn.Module | None = None
    after: nn.Module | None = None


@dataclass(frozen=True)
class PositionForm:
    """What happens to queries and keys, and what is added to their score; None = nothing."""

    sin: Tensor | None = None  # (T, K/2): pairs (i, i + K/2) are rotated
    cos: Tensor | None = None  # (T, K/2)
    bias: Tensor | None = None  # (H, 2T - 1): by distance key - query, from T - 1 down to -(T - 1)
