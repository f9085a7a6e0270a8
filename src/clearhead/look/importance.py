"""How important each head is, over a whole dataset.

    ablation    how much the loss rises when the head writes nothing: one pass for each head
    gradient    mean over examples of |∂ loss / ∂ g_h|, where g_h = 1 multiplies what head h writes: one pass in all

(Michel, Levy and Neubig, 2019.) The gradient is what a little less of a head would do, the ablation what none does.

    B batch, H heads
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.look.interventions import attention_layers, heads_off
from clearhead.look.storing import rounded

FORMAT = "clearhead-importance-1"

Loss = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]  # model, batch -> sum of the losses, of how many it is the sum


@dataclass(frozen=True, eq=False)
class Importance:
    """A number for each head; the larger, the more the model needs it."""

    method: str
    loss: float  # of the whole model, for each token or example
    heads: dict[str, Tensor]  # encoder.0.self, decoder.1.cross, …: (H,)

    def ranking(self) -> list[tuple[str, int, float]]:
        """Layer, head and importance, the most important first."""
        every = [(name, head, value) for name, row in self.heads.items() for head, value in enumerate(row.tolist())]
        return sorted(every, key=lambda each: -each[2])

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        heads = {name: rounded(row) for name, row in self.heads.items()}
        return {"format": FORMAT, "method": self.method, "loss": self.loss, "heads": heads}


def importance_by_ablation(model: nn.Module, batches: Sequence[Any], loss: Loss, layers: str = "*") -> Importance:
    """Switch off one head after the other."""
    whole = _mean_loss(model, batches, loss)
    found: dict[str, Tensor] = {}
    for name, (_, count) in attention_layers(model, layers).items():
        without = []
        for head in range(count):
            with heads_off(model, name, [head]):
                without.append(_mean_loss(model, batches, loss) - whole)
        found[name] = torch.tensor(without, dtype=torch.float64)
    return Importance("ablation", whole, found)


def importance_by_gradient(model: nn.Module, batches: Sequence[Any], loss: Loss, layers: str = "*") -> Importance:
    """How much the loss feels of each head, for one example at a time."""
    total, count, examples = 0.0, 0.0, 0
    felt: dict[str, Tensor] = {}
    for batch in batches:
        with torch.enable_grad(), gates(model, layers) as by_layer:
            value, counted = loss(model, batch)
            slopes = torch.autograd.grad(value, list(by_layer.values()))
        for name, slope in zip(by_layer, slopes, strict=True):
            felt[name] = felt.get(name, 0.0) + slope.abs().sum(0).double()  # (H,)
        total, count, examples = total + float(value.detach()), count + float(counted), examples + len(slopes[0])
    _check(count)
    return Importance("gradient", total / count, {name: row.cpu() / examples for name, row in felt.items()})


@contextmanager
def gates(model: nn.Module, layers: str = "*") -> Iterator[dict[str, Tensor]]:
    """What each head writes is multiplied by 1, which has a gradient: (B, H) for each layer, once it has computed."""
    made: dict[str, Tensor] = {}

    def gate(name: str) -> Any:
        def multiply(_kernel: nn.Module, _given: Any, mixed: Tensor) -> Tensor:
            made[name] = mixed.new_ones(mixed.shape[:2]).requires_grad_()
            return mixed * made[name][:, :, None, None]

        return multiply

    hooks = [kernel.register_forward_hook(gate(name)) for name, (kernel, _) in attention_layers(model, layers).items()]
    try:
        yield made
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _mean_loss(model: nn.Module, batches: Sequence[Any], loss: Loss) -> float:
    """For each token or example of all batches."""
    total, count = 0.0, 0.0
    for batch in batches:
        value, counted = loss(model, batch)
        total, count = total + float(value), count + float(counted)
    _check(count)
    return total / count


def _check(count: float) -> None:
    if count == 0:
        raise ShapeError("no head can be ranked without examples; give at least one batch")
