"""Attention as it was learned: where one fixed example looked at every evaluation of a run.

A training keeps one file at each evaluation (`train/watch.py`); this is all of them as one structure:

    history = read_history(run / "attention", read_attention)
    history.weights["decoder.cross"][1]          # (N, H, T, S): layer 1 at every evaluation

    N evaluations, H heads, T queries, S keys
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from clearhead.errors import ProbeError
from clearhead.look.storing import rounded

FORMAT = "clearhead-history-1"

Edges = tuple[Sequence[str], Sequence[str]]  # a word for each query, and one for each key


class Kept(Protocol):
    """What a training keeps at one evaluation."""

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """encoder.0.self, decoder.1.cross, …: (H, T, S)."""

    @property
    def edges(self) -> Mapping[str, Edges]:
        """encoder.self, decoder.cross, …: their words."""


@dataclass(frozen=True, eq=False)
class History:
    """One example, again and again."""

    steps: list[int]  # N, each larger than the one before
    edges: dict[str, Edges]  # by kind of attention
    weights: dict[str, list[Tensor]]  # by kind and layer: (N, H, T, S) float32

    def at(self, step: int) -> dict[str, list[Tensor]]:
        """The weights of one evaluation: by kind and layer, (H, T, S)."""
        if step not in self.steps:
            raise ProbeError(f"nothing was kept at step {step}; choose from: {', '.join(map(str, self.steps))}")
        number = self.steps.index(step)
        return {kind: [layer[number] for layer in layers] for kind, layers in self.weights.items()}

    def largest(self, kind: str) -> Tensor:
        """(N, layers, H): the largest weight of a query, on average: how decided each head was."""
        if kind not in self.weights:
            raise ProbeError(f"nothing was kept of {kind}; choose from: {', '.join(self.weights)}")
        return torch.stack([layer.amax(-1).mean(-1) for layer in self.weights[kind]], dim=1)

    def to_json(self) -> dict[str, Any]:
        """As plain lists: the weights of a kind by step, layer and head."""
        kinds = {
            kind: {
                "rows": list(self.edges[kind][0]),
                "columns": list(self.edges[kind][1]),
                "weights": rounded(torch.stack(layers, dim=1)),
            }
            for kind, layers in self.weights.items()
        }
        return {"format": FORMAT, "steps": self.steps, "attention": kinds}


def read_history(folder: Path, read: Callable[[Path], Kept]) -> History:
    """All that a run has kept in its folder of attention; `read` reads one of the files."""
    files = {int(file.stem.removeprefix("step-")): file for file in folder.glob("step-*.safetensors")}
    if not files:
        raise ProbeError(f"{folder} has no attention of any evaluation; train a model that attends")
    return history({step: read(files[step]) for step in sorted(files)})


def history(kept: Mapping[int, Kept]) -> History:
    """What was kept at each step, as one structure."""
    steps = sorted(kept)
    last = kept[steps[-1]]
    for step in steps:
        if _shapes(kept[step]) != _shapes(last):
            raise ProbeError(f"steps {step} and {steps[-1]} kept the attention of different models or examples")
    over_time = {name: torch.stack([kept[step].weights[name].float() for step in steps]) for name in last.weights}
    weights = {kind: [over_time[name] for name in _layers(kind, over_time)] for kind in last.edges}
    return History(steps, dict(last.edges), weights)


def _shapes(kept: Kept) -> dict[str, torch.Size]:
    return {name: weights.shape for name, weights in kept.weights.items()}


def _layers(kind: str, names: Mapping[str, Tensor]) -> list[str]:
    """decoder.cross -> decoder.0.cross, decoder.1.cross, …, those that there are."""
    stack, part = kind.split(".")
    own = [name.split(".") for name in names]
    numbers = sorted(int(number) for place, number, what in own if (place, what) == (stack, part))
    return [f"{stack}.{number}.{part}" for number in numbers]
