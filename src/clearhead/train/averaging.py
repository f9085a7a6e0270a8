"""The running average of the weights, which is often better than the weights themselves.

    W̄ ← d W̄ + (1 - d) W,    d = min(decay, (1 + t) / (10 + t))

The decay d rises with the number t of steps, so that the first, random weights are soon forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearhead.errors import RunError


class Average:
    """The average of a model's parameters and of what its batch norms have measured; with decay 0 it keeps nothing."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay, self.own = decay, _weights(model) if decay else {}
        self.weights = {name: weight.detach().clone() for name, weight in self.own.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after one more step; `step` were taken before it."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, average in self.weights.items():
            if average.is_floating_point():
                average.lerp_(self.own[name], 1 - decay)
            else:
                average.copy_(self.own[name])  # a counter has no average

    def restart(self) -> None:
        """Forget what was averaged: the average is the model as it is."""
        _copy(self.own, self.weights)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within, the model has the averaged weights; afterwards its own again, whatever happened."""
        own = {name: weight.detach().clone() for name, weight in self.own.items()}
        try:
            _copy(self.weights, self.own)
            yield
        finally:
            _copy(own, self.own)

    def tensors(self) -> dict[str, Tensor]:
        """All there is to save, by the names of the model; the tensors are its own, not copies."""
        return dict(self.weights)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        if different := self.weights.keys() ^ tensors.keys():
            raise RunError(f"the saved average is of another model: they differ in {', '.join(sorted(different))}")
        for name, average in self.weights.items():
            if tensors[name].shape != average.shape:
                have, want = tuple(tensors[name].shape), tuple(average.shape)
                raise RunError(f"the saved average has {name} of shape {have} where {want} is expected")
        _copy(tensors, self.weights)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, and those buffers that are saved with them; a tied one once."""
    saved = model.state_dict(keep_vars=True).keys()
    return {
        **dict(model.named_parameters()),
        **{name: buffer for name, buffer in model.named_buffers() if name in saved},
    }


@torch.no_grad()
def _copy(weights: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    for name, weight in weights.items():
        into[name].copy_(weight)
