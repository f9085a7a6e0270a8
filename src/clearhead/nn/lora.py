"""LoRA: a trained update of low rank beside a frozen matrix.

    y = x Wᵀ + b + α/r (x Aᵀ) Bᵀ          W (out, in) frozen, A (r, in) and B (out, r) trained

B starts at zero, so an adapted model starts as its base. The sum W + α/r B A is a matrix like any other: `weight` is
that sum, so whoever reads the weight of a linear map (an engine, an export) reads the adapted one.

    N tokens, r rank
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LowRankSum(torch.autograd.Function):
    """x Wᵀ + b + scale (x Aᵀ) Bᵀ, with the gradients of x, A and B only.

    The update is added in place, in both directions: with separate modules each of its steps would be a tensor as
    large as the output.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float) -> Tensor:
        """x (…, in) -> (…, out)."""
        y, low = F.linear(x, weight, bias), F.linear(x, a)
        y.view(-1, y.size(-1)).addmm_(low.view(-1, low.size(-1)), b.t().to(y.dtype), alpha=scale)
        ctx.save_for_backward(x, weight, a, b, low)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kind, wanted = gradient.dtype, ctx.needs_input_grad
        x, weight, a, b, low = (each.to(kind) for each in ctx.saved_tensors)
        rows, inputs = gradient.reshape(-1, gradient.size(-1)), x.reshape(-1, x.size(-1))  # (N, out), (N, in)
        inner = (rows @ b).mul_(ctx.scale)  # (N, r)
        of_x = torch.mm(rows, weight).addmm_(inner, a).view_as(x) if wanted[0] else None
        of_a = inner.t() @ inputs if wanted[3] else None
        of_b = (rows.t() @ low.view(-1, low.size(-1))).mul_(ctx.scale) if wanted[4] else None
        return of_x, None, None, of_a, of_b, None


class LoRALinear(nn.Module):
    """A linear map whose matrix and bias are frozen, and its update."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.in_features, self.out_features, self.scale = base.in_features, base.out_features, alpha / rank
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(base.weight.new_empty(rank, base.in_features))
        self.b = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = LowRankSum.apply(x, self.base.weight, self.base.bias, self.a, self.b, self.scale)
        return y

    @property
    def weight(self) -> Tensor:
        """W + α/r B A, (out, in)."""
        return torch.addmm(self.base.weight, self.b, self.a, alpha=self.scale)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias


def add_lora(model: nn.Module, names: Collection[str], rank: int, alpha: float) -> None:
    """Put an update beside each of these linear maps of a model."""
    for name in names:
        parent, _, own = name.rpartition(".")
        base = model.get_submodule(name)
        assert isinstance(base, nn.Linear)
        setattr(model.get_submodule(parent), own, LoRALinear(base, rank, alpha))


def lora_layers(model: nn.Module) -> Iterator[tuple[str, LoRALinear]]:
    """The adapted linear maps of a model, by name."""
    return ((name, part) for name, part in model.named_modules() if isinstance(part, LoRALinear))


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of the same model without adapters: every update is added to its matrix."""
    layers = dict(lora_layers(model))
    updates = {f"{name}.{matrix}" for name in layers for matrix in ("a", "b")}
    kept = {base_name(name, layers): each for name, each in model.state_dict().items() if name not in updates}
    return kept | {f"{name}.weight": layer.weight.detach() for name, layer in layers.items()}


def base_name(name: str, layers: Collection[str]) -> str:
    """The name of a tensor in the model without adapters: `query.base.weight` is `query.weight`."""
    place, _, own = name.rpartition(".")
    layer = place.removesuffix(".base")
    return f"{layer}.{own}" if layer in layers else name
