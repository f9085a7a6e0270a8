"""Student forcing (scheduled sampling): while training, the decoder reads some of its own words back.

With teacher forcing it only ever sees right prefixes, and at translation time it must go on from its own mistakes.
Here a share of the words it reads is replaced by what it said in their place a moment before:

    logits = model(source, target)                                        what it would say
    mixed = mix_targets(target, logits.argmax(-1), share, generator)
    loss(model(source, mixed), ...)

    B batch, T tokens
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ShapeError


def mix_targets(
    target: Tensor, predicted: Tensor, share: float, generator: torch.Generator | None = None, *, pad: int = 0
) -> Tensor:
    """target (B, T) as the decoder reads it, predicted (B, T) what it said after each token -> (B, T) of both.

    What was said after token t stands in the place of token t + 1. The start token and padding stay, and a
    prediction of padding is not taken, so what is padding is the same as before.
    """
    if target.shape != predicted.shape:
        have, want = tuple(predicted.shape), tuple(target.shape)
        raise ShapeError(f"predictions of shape {have} cannot replace targets of shape {want}")
    said = torch.cat((target[:, :1], predicted[:, :-1]), dim=1)  # the place of the start token keeps it
    device = target.device if generator is None else generator.device
    chosen = torch.rand(target.shape, generator=generator, device=device).to(target.device) < share
    return torch.where(chosen & (target != pad) & (said != pad), said, target)


def read_own_words(model: Any, source: Tensor, target: Tensor, share: float, pad: int) -> Tensor:
    """What a writer of target (B, 1 + T + 1) reads, (B, 1 + T), with a share of it as it would say it itself."""
    given = target[:, :-1]
    with torch.no_grad():
        said = model(source, given).argmax(-1)
    return mix_targets(given, said, share, pad=pad)
