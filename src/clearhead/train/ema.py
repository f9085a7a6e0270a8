"""Exponential moving average of the weights, often better than the last weights themselves.

    W̄ ← d W̄ + (1 - d) W,    d = min(decay, (1 + t) / (10 + t))

The decay d rises with the step t, so that the random initial weights are soon forgotten.

torch's `AveragedModel` copies the whole module, which a model sharded by FSDP refuses; here only tensors are copied, so
the average is sharded like the weights it belongs to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearhead.errors import RunError


class EMA:
    """Moving average of a model's parameters and saved buffers; with decay 0 it averages nothing."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay, self.weights = decay, _saved_tensors(model) if decay else {}
        self.averages = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Average in the weights after an optimiser step; `step` counts the updates before this one."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, average in self.averages.items():
            if average.is_floating_point():
                average.lerp_(self.weights[name], 1 - decay)
            else:
                average.copy_(self.weights[name])  # a counter has no average

    def reset(self, names: Collection[str] | None = None) -> None:
        """Start again from the current weights: all, or those of some names."""
        _copy({name: each for name, each in self.weights.items() if names is None or name in names}, self.averages)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averages into the model for the length of a `with` block, then restore its weights."""
        backup = {name: weight.detach().clone() for name, weight in self.weights.items()}
        try:
            _copy(self.averages, self.weights)
            yield
        finally:
            _copy(backup, self.weights)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by parameter name; not copies."""
        return dict(self.averages)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        if different := self.averages.keys() ^ tensors.keys():
            raise RunError(f"the saved average is of another model: they differ in {', '.join(sorted(different))}")
        for name, average in self.averages.items():
            if tensors[name].shape != average.shape:
                have, want = tuple(tensors[name].shape), tuple(average.shape)
                raise RunError(f"the saved average has {name} of shape {have} where {want} is expected")
        _copy(tensors, self.averages)


def _saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Trained parameters and persistent buffers; a tied parameter once."""
    saved = model.state_dict(keep_vars=True).keys()
    return {
        **{name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad},
        **{name: buffer for name, buffer in model.named_buffers() if name in saved},
    }


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, tensor in source.items():
        target[name].copy_(tensor)
