"""The weights of a reference copied into ours by a table of names, and the two held equal.

A row of a table reads `their name: our name`; `*` is the number of a layer, and a row for a module holds for its
weight and its bias. Every row is a linear change of names and axes, so the gradients are compared through it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]
TOLERANCE = 1e-9  # in float64


def unchanged(theirs: Tensor) -> Tensor:
    return theirs


def turned(theirs: Tensor) -> Tensor:
    """Conv1D keeps its matrix (in, out), and Linear (out, in); a bias has nothing to turn."""
    return theirs.t()


@dataclass(frozen=True)
class Into:
    """Where one tensor of theirs goes: changed, then cut along the first axis into as many parts as there are names."""

    names: tuple[str, ...]
    change: Change = unchanged


Table = dict[str, str | Into]


def into(*names: str, change: Change = unchanged) -> Into:
    return Into(names, change)


def within(theirs: str, ours: str, table: Table) -> Table:
    """The table of a part, for a model that holds the part under these names."""
    return {f"{theirs}.{name}": _inside(ours, target) for name, target in table.items()}


def _inside(module: str, target: str | Into) -> str | Into:
    if isinstance(target, str):
        return f"{module}.{target}"
    return replace(target, names=tuple(f"{module}.{name}" for name in target.names))


def translated(theirs: dict[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Their tensors under our names and in our shapes; a name without a place of its own is an error."""
    ours: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        target = _place(name, table)
        if taken := ours.keys() & target.names:
            raise LookupError(f"{name} of theirs goes where another went: {sorted(taken)}")
        ours.update(zip(target.names, target.change(tensor).chunk(len(target.names)), strict=True))
    return ours


def _place(name: str, table: Table) -> Into:
    for pattern, target in table.items():
        found = re.fullmatch(re.escape(pattern).replace(r"\*", r"(\d+)") + r"(\.weight|\.bias|)", name)
        if found:
            *layer, end = found.groups()
            target = into(target) if isinstance(target, str) else target
            return replace(target, names=tuple(part.replace("*", "".join(layer)) + end for part in target.names))
    raise LookupError(f"{name} of theirs has no place in the table")


def trainable(module: nn.Module) -> dict[str, Tensor]:
    """What is frozen (Marian's table of sines) is no weight: it is not copied."""
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


def randomise(module: nn.Module) -> None:
    """Weights as of a trained model: a fresh one has zero biases and almost even attention, which would hide errors."""
    with torch.no_grad():
        for weight in trainable(module).values():
            noise = torch.randn_like(weight)
            weight.copy_(weight + 0.3 * noise if weight.dim() == 1 else noise * weight[0].numel() ** -0.5)


def copy(theirs: nn.Module, ours: nn.Module, table: Table) -> None:
    """Every weight of theirs goes somewhere, and every weight of ours comes from somewhere."""
    source, target = translated(trainable(theirs), table), trainable(ours)
    if leftover := source.keys() ^ target.keys():
        raise LookupError(f"only on one side: {sorted(leftover)}")
    with torch.no_grad():
        for name, weight in target.items():
            assert weight.shape == source[name].shape, name  # `copy_` would broadcast
            weight.copy_(source[name])


class Pair:
    """Ours and theirs with the same weights; `agree` compares what they say, and all gradients behind it."""

    def __init__(self, ours: nn.Module, theirs: nn.Module, table: Table):
        self.ours, self.theirs, self.table = ours.eval(), theirs.eval(), table
        randomise(self.theirs)
        copy(self.theirs, self.ours, table)

    def agree(self, ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
        """Both outputs, and how a random mixture of each depends on the inputs and on every weight."""
        same("output", ours, theirs)
        given, probe = {f"input {number}": x for number, x in enumerate(inputs)}, torch.randn_like(ours)
        found = gradients(ours, probe, trainable(self.ours) | given)
        expected = gradients(theirs, probe, trainable(self.theirs) | given)
        expected = translated(expected, self.table | {name: name for name in given})
        for name, gradient in found.items():
            same(f"gradient of {name}", gradient, expected[name])


def gradients(output: Tensor, probe: Tensor, behind: dict[str, Tensor]) -> dict[str, Tensor]:
    """How output · probe changes with each of these; zero where nothing flows."""
    found = torch.autograd.grad(
        output, list(behind.values()), probe, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return dict(zip(behind, found, strict=True))


def same(name: str, ours: Tensor, theirs: Tensor) -> None:
    """Equal as whole tensors."""
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda text: f"{name}: {text}")
