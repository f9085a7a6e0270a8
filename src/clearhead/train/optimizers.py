"""Optimisers: AdamW for everything, or Muon for the matrices of the blocks and AdamW for the rest.

Muon takes the momentum of a matrix's gradient and replaces it by the nearest orthogonal matrix, so that every
direction learns at the same pace:

    M ← μ M + G,    W ← W - η √(max(1, rows/columns)) · orthogonal(G + μ M)

torch's own Muon orthogonalises one matrix at a time and in bfloat16, which is slow on a CPU without it; here it is
done in float32 there, and for all matrices of one shape at once.

What an optimiser remembers is saved as tensors under the names of the parameters it belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.optimizer import ParamsT

from clearhead.config import TrainConfig
from clearhead.errors import RunError, ShapeError

Named = tuple[str, nn.Parameter]

# Coefficients of the quintic iteration that drives all singular values towards 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """AdamW, and after it Muon where it is asked for and the model has blocks."""
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices = {name for name, p in parameters.items() if _is_matrix(p) and id(p) not in embeddings}
    muon = {name for name in matrices if _is_inside_a_block(name, parameters[name]) and config.optimizer == "muon"}
    decays = ((matrices - muon, config.weight_decay), (parameters.keys() - matrices, 0.0))
    groups = [{"params": _only(parameters, names), "weight_decay": decay} for names, decay in decays if names]
    optimizers: list[Optimizer] = [AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)]
    if muon:
        optimizers.append(Muon(_only(parameters, muon), lr=config.matrix_rate, weight_decay=config.weight_decay))
    for group in _groups(optimizers):
        group["base_rate"] = group["lr"]  # what a schedule multiplies
    return optimizers


def set_rates(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Give every optimiser this share of its own highest rate."""
    for group in _groups(optimizers):
        group["lr"] = group["base_rate"] * factor


def _is_matrix(parameter: nn.Parameter) -> bool:
    """Not a bias, a norm's gain, or one number for each head."""
    return parameter.ndim >= 2 and parameter.shape[-2:].numel() > 1


def _is_inside_a_block(name: str, parameter: nn.Parameter) -> bool:
    """One matrix between two layers of vectors: no table, no output, no stack of small matrices."""
    return parameter.ndim == 2 and "blocks" in name.split(".")


def _only(parameters: Mapping[str, nn.Parameter], names: Set[str]) -> list[Named]:
    """Some of them, in the order of the model."""
    return [(name, parameter) for name, parameter in parameters.items() if name in names]


def _groups(optimizers: Sequence[Optimizer]) -> Iterator[dict[str, Any]]:
    return (group for optimizer in optimizers for group in optimizer.param_groups)


# --- Muon ---


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """(N, rows, columns): each replaced by a matrix with the same singular vectors and singular values near 1."""
    x = matrices.to(_working_type(matrices.device, matrices.dtype))
    wide = x.size(-2) <= x.size(-1)
    x = x if wide else x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    long = 2 * x.size(-2) <= x.size(-1) and x.dtype != torch.bfloat16  # bfloat16 is too coarse for squares of squares
    x = _iterate_on_square(x, rounds) if long else _iterate(x, rounds)
    return (x if wide else x.mT).to(matrices.dtype)


def _iterate(x: Tensor, rounds: int) -> Tensor:
    """X ← (A + B S + C S²) X with S = X Xᵀ, which does to every singular value σ ← Aσ + Bσ³ + Cσ⁵."""
    for _ in range(rounds):
        square = x @ x.mT
        x = torch.baddbmm(x, _polynomial(square), x, beta=_A)
    return x


def _iterate_on_square(x: Tensor, rounds: int) -> Tensor:
    """The same for matrices much longer than high: only the small S is iterated, S ← P S P, and X is multiplied once.

    P = A + B S + C S² has the singular vectors of S, so the two commute, and all P together are one small matrix.
    """
    square = x @ x.mT
    product = step = _polynomial(square, _A)
    for _ in range(rounds - 1):
        square = step @ square @ step
        step = _polynomial(square, _A)
        product = step @ product
    return product @ x


def _polynomial(square: Tensor, constant: float = 0.0) -> Tensor:
    """constant + B S + C S²: (N, rows, rows)."""
    sum_ = torch.baddbmm(square, square, square, beta=_B, alpha=_C)
    sum_.diagonal(dim1=-2, dim2=-1).add_(constant)
    return sum_


def _working_type(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """bfloat16 only where it is native; float64 stays what it is."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.promote_types(dtype, torch.float32)


class Muon(Optimizer):
    """Momentum, made orthogonal; for matrices only."""

    def __init__(self, matrices: ParamsT, lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for shape in (tuple(p.shape) for group in self.param_groups for p in group["params"]):
            if len(shape) != 2:
                raise ShapeError(f"muon is for matrices, and a parameter has shape {shape}; give it to adamw")

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every matrix that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for alike in _by_shape(p for p in group["params"] if p.grad is not None):
                directions = orthogonal(torch.stack([self._momentum(p, group["momentum"]) for p in alike]))
                for parameter, direction in zip(alike, directions, strict=True):
                    stride = group["lr"] * max(1.0, parameter.size(0) / parameter.size(1)) ** 0.5
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=stride)
        return loss

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """The Nesterov direction: where the momentum will be one step on."""
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        average: Tensor = state["momentum"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(average, momentum)


def _by_shape(parameters: Iterator[nn.Parameter]) -> list[list[nn.Parameter]]:
    shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        shapes[parameter.shape].append(parameter)
    return list(shapes.values())


# --- saving ---


def optimizer_tensors(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """All that the optimisers remember, `0.exp_avg.blocks.1.weight`; the tensors are theirs, not copies."""
    return {
        f"{index}.{kind}.{name}": value.detach()
        for index, optimizer in enumerate(optimizers)
        for name, parameter in _named(optimizer)
        for kind, value in sorted(optimizer.state.get(parameter, {}).items())
    }


def load_optimizer_tensors(optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave, into optimisers made for a model with the same names and shapes."""
    _check_fit(optimizers, tensors)
    for index, optimizer in enumerate(optimizers):
        optimizer.state.clear()
        for name, parameter in _named(optimizer):
            saved = {kind: tensors.get(f"{index}.{kind}.{name}") for kind in _kinds(optimizer)}
            found = {kind: _copy_beside(parameter, value) for kind, value in saved.items() if value is not None}
            if found:
                optimizer.state[parameter] = found


def _named(optimizer: Optimizer) -> Iterator[Named]:
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def _kinds(optimizer: Optimizer) -> tuple[str, ...]:
    """What it remembers of each parameter it has moved."""
    return ("momentum",) if isinstance(optimizer, Muon) else ("exp_avg", "exp_avg_sq", "step")


def _copy_beside(parameter: nn.Parameter, value: Tensor) -> Tensor:
    """A copy that lives where its parameter does; the fused AdamW keeps its step there too."""
    return value.detach().to(parameter.device, copy=True)


def _check_fit(optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a name nobody has, a shape that differs, and a parameter of which only a part was saved."""
    left = set(tensors)
    for index, optimizer in enumerate(optimizers):
        for name, parameter in _named(optimizer):
            wanted = {f"{index}.{kind}.{name}": () if kind == "step" else parameter.shape for kind in _kinds(optimizer)}
            _check_parameter(wanted, tensors)
            left -= wanted.keys()
    if left:
        names = ", ".join(sorted(left))
        raise RunError(f"the saved optimiser is of another model or of another kind: nothing here is called {names}")


def _check_parameter(wanted: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """All of it is there with the right shape, or none: a parameter that has never moved has nothing to remember."""
    absent = sorted(wanted.keys() - tensors.keys())
    if absent and len(absent) < len(wanted):
        raise RunError(f"the saved optimiser is not whole: {', '.join(absent)} is missing")
    for name in sorted(wanted.keys() & tensors.keys()):
        have, want = tuple(tensors[name].shape), tuple(wanted[name])
        if have != want:
            raise RunError(f"the saved optimiser has {name} of shape {have} where {want} is expected")
