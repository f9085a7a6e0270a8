"""Scheduled sampling (Bengio et al. 2015; "student forcing"): the decoder sometimes reads its own predictions.

With teacher forcing the decoder only ever sees correct prefixes, but when it generates it continues from its own
mistakes. Here a share of its input tokens is replaced by what it predicts in their place:

    logits = model(source, target)
    inputs = replace_with_predictions(target, logits.argmax(-1), share, generator)
    loss(model(source, inputs), ...)

    B batch, T tokens
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ShapeError


def replace_with_predictions(
    target: Tensor, predicted: Tensor, share: float, generator: torch.Generator | None = None, *, pad: int = 0
) -> Tensor:
    """Decoder inputs target (B, T) with a random share of tokens replaced by predictions, (B, T).

    `predicted` (B, T) holds the most likely token after each input, so the prediction at t replaces token t + 1. The
    start token and padding are never replaced, and a predicted padding token is never used, so padding stays the same.
    """
    if target.shape != predicted.shape:
        have, want = tuple(predicted.shape), tuple(target.shape)
        raise ShapeError(f"predictions of shape {have} cannot replace targets of shape {want}")
    shifted = torch.cat((target[:, :1], predicted[:, :-1]), dim=1)  # (B, T), the start token in front
    device = target.device if generator is None else generator.device
    chosen = torch.rand(target.shape, generator=generator, device=device).to(target.device) < share
    return torch.where(chosen & (target != pad) & (shifted != pad), shifted, target)


def sampled_inputs(model: Any, source: Tensor, target: Tensor, share: float, pad: int) -> Tensor:
    """Decoder inputs (B, 1 + T) of target (B, 1 + T + 1), a share of them the model's own predictions."""
    inputs = target[:, :-1]
    with torch.no_grad():
        predicted = model(source, inputs).argmax(-1)
    return replace_with_predictions(inputs, predicted, share, pad=pad)
