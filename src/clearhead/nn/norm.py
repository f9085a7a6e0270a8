"""Normalisation and dropout.

A norm brings every token vector to mean β and standard deviation γ, so that training stays stable:

    LayerNorm(z; γ, β) = γ (z - μ_z) / σ_z + β        over the features of one token
    RMSNorm(z; γ)      = γ z / √(mean of z²)          without the mean
    BatchNorm                                          over the tokens of the batch, for each feature

LayerNorm and RMSNorm are torch's, which are fused; `layer_norm` and `rms_norm` are their equations.

A norm is made by a callable from the width to a module. Registered, it is a value of `model.norm`:

    @NORMS.register("mine")
    class Mine(nn.Module):
        def __init__(self, dim: int): ...
        def forward(self, x): ...                              # (B, T, D) -> (B, T, D)

Dropout sets each number to zero with probability p while training, and scales the others to keep the mean:

    y = x · keep / (1 - p)          keep ~ Bernoulli(1 - p), one draw for each number
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from clearhead.registry import Registry

MakeNorm = Callable[[int], nn.Module]  # width -> a norm of that width

NORMS: Registry[MakeNorm] = Registry("norm")


@dataclass(frozen=True)
class NormForm:
    """What native code needs to know: gain · normalised(x) + shift."""

    kind: str  # "none", "layer" or "rms"
    gain: Tensor | None = None  # (D,)
    shift: Tensor | None = None  # (D,)
    eps: float = 0.0


@runtime_checkable
class NativeNorm(Protocol):
    """A norm with a native form."""

    def native_form(self) -> NormForm: ...


def layer_norm(z: Tensor, gain: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """γ (z - μ) / σ + β over the last axis; eps keeps a constant vector from dividing by zero."""
    mean = z.mean(-1, keepdim=True)
    variance = ((z - mean) ** 2).mean(-1, keepdim=True)
    return gain * (z - mean) / torch.sqrt(variance + eps) + shift


def rms_norm(z: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    """γ z / √(mean of z²) over the last axis."""
    return gain * z / torch.sqrt((z**2).mean(-1, keepdim=True) + eps)


@NORMS.register("layer")
class LayerNorm(nn.LayerNorm):
    """torch's, with a native form."""

    def native_form(self) -> NormForm:
        return NormForm("layer", self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """torch's, with a native form."""

    def native_form(self) -> NormForm:
        eps = torch.finfo(self.weight.dtype).eps if self.eps is None else self.eps
        return NormForm("rms", self.weight, None, eps)


NORMS.register("rms")(partial(RMSNorm, eps=1e-5))


@NORMS.register("batch")
class BatchNorm(nn.Module):
    """For contrast: normalises each feature over all tokens of the batch, so that tokens influence each other."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, -2)).view_as(x)


class NoNorm(nn.Identity):
    """Leaves its input unchanged."""

    def native_form(self) -> NormForm:
        return NormForm("none")


# --- dropout ---

LEVELS = 1 << 16  # values of sixteen bits
LOWEST = -(1 << 63)  # of a 64-bit word


class Dropout(nn.Dropout):
    """torch's, with fewer random words on a CPU, where drawing one for each number takes longer than the layer before.

    Four numbers share one 64-bit word: p is rounded to a multiple of 1/65536.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return super().forward(x)
        dropped = round(self.p * LEVELS)
        if dropped == LEVELS:
            return x * 0.0
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(LOWEST, None)
        random = words.view(torch.int16)[: x.numel()].view(x.shape)  # from -32768 to 32767
        return x * (random >= dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - dropped))
