"""Integrated gradients: how much of an answer is owed to each token, by a rule that is not attention.

    owed = (x - x₀) · mean of ∂ answer / ∂ x along the straight way from x₀ to x

What is owed to all tokens together is exactly what the answer gained on the way (completeness); `gap` says how far
the sum over steps is from that. x is what the first block reads, and x₀ the mean of it: every token the same. For
an image x can also be its pixels.

    B batch, T tokens, D width

(Sundararajan, Taly and Yan, 2017.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.capture import capture
from clearhead.look.interventions import patched
from clearhead.look.relevance import chosen
from clearhead.look.storing import rounded

FORMAT = "clearhead-gradients-1"

Answer = Callable[[list[Tensor]], Tensor]  # points -> what is answered there, (B,)


@dataclass(frozen=True, eq=False)
class Owed:
    """What one answer owes to each token or pixel."""

    tokens: dict[str, Tensor]  # by stack, (B, T); or pixels, (B, height, width)
    choice: Tensor  # (B,): the token or label that is explained
    gained: Tensor  # (B,): the answer at x less the answer at x₀

    @property
    def gap(self) -> Tensor:
        """(B,): how far what is owed is from what was gained; smaller with more steps."""
        return sum((each.flatten(1).sum(1) for each in self.tokens.values()), -self.gained).abs()

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        tokens = {name: rounded(each) for name, each in self.tokens.items()}
        return {"format": FORMAT, "choice": self.choice.tolist(), "gained": rounded(self.gained), "owed": tokens}


def integrated_gradients(
    model: nn.Module,
    inputs: Sequence[Tensor],
    position: int = -1,
    choice: Tensor | int | None = None,
    steps: int = 64,
) -> Owed:
    """What the answer at a position, the likeliest one or `choice`, owes to the tokens that each stack reads."""
    with torch.no_grad(), capture(model, "*.embedded") as embedded:
        _, choice = chosen(model(*inputs), position, choice)
    points = list(embedded.values())  # each (B, T, D)

    def answer(states: list[Tensor]) -> Tensor:
        with ExitStack() as patches:
            for name, state in zip(embedded, states, strict=True):
                patches.enter_context(patched(model, name, state))
            return chosen(model(*inputs), position, choice)[0]

    owed, gained = integrate(answer, points, [x.mean(1, keepdim=True).expand_as(x) for x in points], steps)
    return Owed({name.split(".")[0]: each.sum(-1) for name, each in zip(embedded, owed, strict=True)}, choice, gained)


def pixel_gradients(
    model: nn.Module, images: Tensor, background: Tensor, choice: Tensor | int | None = None, steps: int = 64
) -> Owed:
    """What a label owes to the pixels of images (B, C, height, width), against a background of that shape."""
    if background.shape[-3:] != images.shape[-3:]:
        have, want = tuple(background.shape), tuple(images.shape)
        raise ShapeError(f"a background of shape {have} does not fit images of shape {want}")
    with torch.no_grad():
        _, choice = chosen(model(images), choice=choice)
    [owed], gained = integrate(
        lambda points: chosen(model(points[0]), choice=choice)[0], [images], [background.expand_as(images)], steps
    )
    return Owed({"pixels": owed.sum(1)}, choice, gained)


def integrate(answer: Answer, points: list[Tensor], start: list[Tensor], steps: int) -> tuple[list[Tensor], Tensor]:
    """What the answer owes to each number of the points on the way from `start`; and what it gained, (B,)."""
    if steps < 1:
        raise ConfigError(f"steps={steps} goes nowhere; choose at least 1")
    way = [x - x0 for x, x0 in zip(points, start, strict=True)]
    total = [torch.zeros_like(x) for x in points]
    for step in range(steps):
        share = (step + 0.5) / steps  # the middle of each step
        here = [(x0 + share * along).requires_grad_() for x0, along in zip(start, way, strict=True)]
        with torch.enable_grad():
            slopes = torch.autograd.grad(answer(here).sum(), here)
        total = [so_far + slope / steps for so_far, slope in zip(total, slopes, strict=True)]
    with torch.no_grad():
        gained = answer(points) - answer(start)
    return [along * mean for along, mean in zip(way, total, strict=True)], gained
