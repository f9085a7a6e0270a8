"""Muon (Jordan et al. 2024): momentum, orthogonalised, so that every direction of a matrix learns at the same pace.

    M ← μ M + (1 - μ) G,    W ← W - η √(max(1, rows/columns)) · orthogonal((1 - μ) G + μ M)

torch's own Muon orthogonalises one matrix at a time and in bfloat16, which is slow on a CPU without it. This one works
in float32 there, and on all matrices of one shape at once. Of matrices that are cut into shards (fsdp), each process
collects some whole ones, orthogonalises them, and sends every process its rows back.

    N matrices of one shape, P processes
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, overload

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from clearhead.errors import ShapeError

# Coefficients of the quintic Newton-Schulz iteration that drives all singular values towards 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315


class Muon(Optimizer):
    """Orthogonalised momentum, for matrices, and for the filters of convolutions as the rows of one."""

    def __init__(self, matrices: ParamsT, lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for shape in (tuple(p.shape) for group in self.param_groups for p in group["params"]):
            if len(shape) not in (2, 4):
                raise ShapeError(f"muon is for matrices, and a parameter has shape {shape}; give it to adamw")

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for same_shape in _by_shape(p for p in group["params"] if p.grad is not None):
                updates = _orthogonal_all([self._momentum(p, group["momentum"]) for p in same_shape])
                for parameter, update in zip(same_shape, updates, strict=True):
                    rate = group["lr"] * max(1.0, parameter.size(0) ** 2 / parameter.numel()) ** 0.5
                    local = _local(parameter).mul_(1 - group["lr"] * group["weight_decay"])
                    local.sub_(update.view_as(local), alpha=rate)
        return loss

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """The Nesterov momentum, a matrix: where the momentum will be one step later."""
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        average: Tensor = state["momentum"].lerp_(gradient, 1 - momentum)
        ahead = gradient.lerp(average, momentum)
        return ahead if ahead.ndim == 2 else ahead.flatten(1)


def _by_shape(parameters: Iterator[nn.Parameter]) -> list[list[nn.Parameter]]:
    shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        shapes[parameter.shape].append(parameter)
    return list(shapes.values())


def _local(tensor: Tensor) -> Tensor:
    """This process's rows of a sharded matrix; any other tensor as it is."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _orthogonal_all(matrices: list[Tensor]) -> Tensor | list[Tensor]:
    """Every matrix of a list orthogonalised, all of one shape; of sharded ones, this process's rows."""
    from torch.distributed.tensor import DTensor

    first = matrices[0]
    if not isinstance(first, DTensor):
        return orthogonal(torch.stack(matrices))
    return _orthogonal_shards([_local(each) for each in matrices], first.size(0), first.device_mesh.get_group())


def _orthogonal_shards(shards: list[Tensor], rows: int, group: Any) -> list[Tensor]:
    """`orthogonal` of N matrices (rows, columns) by P processes, each of which has some rows of each and returns those.

    Matrix n is computed whole by process n mod P: one exchange collects the rows, another one returns them.
    """
    rank, processes, columns = distributed.get_rank(group), distributed.get_world_size(group), shards[0].size(1)
    owned = [range(owner, len(shards), processes) for owner in range(processes)]  # matrices, by who computes them
    share = -(-rows // processes)  # rows of a shard, as torch.chunk cuts
    heights = [max(0, min(share, rows - share * each)) for each in range(processes)]
    mine, height = len(owned[rank]), heights[rank]
    theirs = [len(each) * height for each in owned]  # rows that each owner gets from here
    others = [mine * each for each in heights]  # rows that come here from each process

    collected = shards[0].new_empty(mine * rows, columns)
    cut = torch.cat([shards[n] for each in owned for n in each])
    distributed.all_to_all_single(collected, cut, others, theirs, group=group)
    blocks = [
        block.view(mine, each, columns)
        for block, each in zip(torch.split_with_sizes(collected, others), heights, strict=True)
    ]
    whole = orthogonal(torch.cat(blocks, 1))  # (mine, rows, columns)
    done = torch.cat([block.reshape(-1, columns) for block in torch.split_with_sizes(whole, heights, 1)])
    distributed.all_to_all_single(cut, done, theirs, others, group=group)
    updates = dict(zip((n for each in owned for n in each), cut.view(len(shards), height, columns), strict=True))
    return [updates[n] for n in range(len(shards))]


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """(N, rows, columns) with the same singular vectors, and singular values near 1."""
    x = matrices.to(_compute_dtype(matrices.device, matrices.dtype))
    wide = x.size(-2) <= x.size(-1)
    x = x if wide else x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    long = 2 * x.size(-2) <= x.size(-1) and x.dtype != torch.bfloat16  # bfloat16 is too coarse for squares of squares
    x = _iterate_on_square(x, rounds) if long else _iterate(x, rounds)
    return (x if wide else x.mT).to(matrices.dtype)


def _iterate(x: Tensor, rounds: int) -> Tensor:
    """X ← (A + B S + C S²) X with S = X Xᵀ, which maps every singular value σ ← Aσ + Bσ³ + Cσ⁵."""
    for _ in range(rounds):
        square = x @ x.mT
        x = torch.baddbmm(x, _polynomial(square), x, beta=_A)
    return x


def _iterate_on_square(x: Tensor, rounds: int) -> Tensor:
    """`_iterate` for matrices much wider than high: only the small S is iterated, S ← P S P; X is multiplied once.

    P = A + B S + C S² has the singular vectors of S, so the two commute, and the product of all P is one small matrix.
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
    total = torch.baddbmm(square, square, square, beta=_B, alpha=_C)
    total.diagonal(dim1=-2, dim2=-1).add_(constant)
    return total


def _compute_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """bfloat16 where it is native, else at least float32."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.promote_types(dtype, torch.float32)
