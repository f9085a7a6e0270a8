"""Integrated gradients: the contribution of each token to an answer, computed without attention weights.

    contribution = (x - x₀) · mean of ∂ answer / ∂ x along the straight line from x₀ to x

All contributions together are exactly the difference between the answers at x and at x₀ (completeness); `gap` is how
far the sum over steps is from it. x is the input of the first block, and the baseline x₀ its mean: the same vector for
every token. For an image x can also be its pixels.

    B batch, T tokens, D width, K steps that are computed together

(Sundararajan, Taly and Yan, 2017.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.interventions import patched
from clearhead.look.probes import capture
from clearhead.look.record import LookRecord, rounded
from clearhead.look.view import VIEWS, ViewOptions
from clearhead.look.views.relevance import AttributionView, answer_position, choose_answer

FORMAT = "clearhead-gradients-1"

VECTORS = 512  # that are computed together: the tokens of so many steps as fit

Answer = Callable[[list[Tensor]], Tensor]  # points (K B, …) -> the logit of the answer, (K B,)


@VIEWS.register("gradients")
class Gradients(AttributionView):
    """What an answer owes to each token, without attention."""

    page = "gradients"
    label = "integrated gradients"

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Self:
        position = answer_position(look, options)
        found = integrated_gradients(look.require_network(), look.inputs, position)
        values = {f"{stack}.self": each[0].detach() for stack, each in found.tokens.items()}
        return cls(look, found.to_json(), values, options.columns, position)


@dataclass(frozen=True, eq=False)
class Contributions:
    """The contribution of each token or pixel to one answer."""

    tokens: dict[str, Tensor]  # by stack, (B, T); or pixels, (B, height, width)
    choice: Tensor  # (B,): the token or label that is explained
    gained: Tensor  # (B,): the answer at x minus the answer at x₀

    @property
    def gap(self) -> Tensor:
        """(B,): the difference between the sum of the contributions and `gained`; smaller with more steps."""
        return sum((each.flatten(1).sum(1) for each in self.tokens.values()), -self.gained).abs()

    def to_json(self) -> dict[str, Any]:
        tokens = {name: rounded(each) for name, each in self.tokens.items()}
        return {"format": FORMAT, "choice": self.choice.tolist(), "gained": rounded(self.gained), "owed": tokens}


def integrated_gradients(
    model: nn.Module, inputs: Sequence[Tensor], position: int = -1, choice: Tensor | int | None = None, steps: int = 64
) -> Contributions:
    """The contributions of the input tokens of each stack to the answer at a position: the likeliest, or `choice`."""
    with torch.no_grad(), capture(model, "*.embedded") as embedded:
        _, choice = choose_answer(model(*inputs), position, choice)
    points = list(embedded.values())  # each (B, T, D)

    def answer(states: list[Tensor]) -> Tensor:
        steps = len(states[0]) // len(points[0])
        with ExitStack() as patches:
            for name, state in zip(embedded, states, strict=True):
                patches.enter_context(patched(model, name, state))
            logits = model(*(torch.cat([each] * steps) for each in inputs))
        return choose_answer(logits, position, choice.repeat(steps))[0]

    found, gained = integrate(answer, points, [x.mean(1, keepdim=True).expand_as(x) for x in points], steps)
    tokens = {name.split(".")[0]: each.sum(-1) for name, each in zip(embedded, found, strict=True)}
    return Contributions(tokens, choice, gained)


def pixel_gradients(
    model: nn.Module, images: Tensor, background: Tensor, choice: Tensor | int | None = None, steps: int = 64
) -> Contributions:
    """The contributions of the pixels of images (B, C, height, width) to a label, against a baseline of that shape."""
    if background.shape[-3:] != images.shape[-3:]:
        have, want = tuple(background.shape), tuple(images.shape)
        raise ShapeError(f"a background of shape {have} does not fit images of shape {want}")
    with torch.no_grad():
        _, choice = choose_answer(model(images), choice=choice)
    [found], gained = integrate(
        lambda points: choose_answer(model(points[0]), choice=choice.repeat(len(points[0]) // len(images)))[0],
        [images],
        [background.expand_as(images)],
        steps,
    )
    return Contributions({"pixels": found.sum(1)}, choice, gained)


def integrate(answer: Answer, points: list[Tensor], start: list[Tensor], steps: int) -> tuple[list[Tensor], Tensor]:
    """The contribution of each number of the points on the line from `start`, and the gain of the answer, (B,)."""
    if steps < 1:
        raise ConfigError(f"steps={steps} is too few; choose at least 1")
    line = [x - x0 for x, x0 in zip(points, start, strict=True)]
    total = [torch.zeros_like(x) for x in points]
    together = max(1, VECTORS // sum(x[..., 0].numel() for x in points))  # K
    for first in range(0, steps, together):
        some = torch.arange(first, min(first + together, steps))
        shares = (some + 0.5).to(points[0]) / steps  # (K,): the middle of each step
        here = [_line_points(x0, along, shares).requires_grad_() for x0, along in zip(start, line, strict=True)]
        with torch.enable_grad():
            slopes = torch.autograd.grad(answer(here).sum(), here)
        total = [so_far + _per_row(slope, len(some)) for so_far, slope in zip(total, slopes, strict=True)]
    with torch.no_grad():
        gained = answer(points) - answer(start)
    return [along * slope / steps for along, slope in zip(line, total, strict=True)], gained


def _per_row(slopes: Tensor, steps: int) -> Tensor:
    """(K B, …) -> (B, …): the sum over the steps."""
    return slopes.view(steps, -1, *slopes.shape[1:]).sum(0)


def _line_points(start: Tensor, along: Tensor, shares: Tensor) -> Tensor:
    """(B, …) -> (K B, …): the points at each share of the line."""
    return torch.cat([start + share * along for share in shares])
