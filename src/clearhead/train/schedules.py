"""Schedules: which share of its highest rate an optimiser gets, as a function of how much of the training is done.

Every one rises in a straight line during the warm-up and then falls in its own way:

    inverse_sqrt   √(warmup / progress)                     the paper's
    cosine         ½ (1 + cos(π · done of the rest))        down to 0
    linear         1 - done of the rest                     down to 0
    stable         1, and at the end a straight line to 0

Progress is a share of the steps or of the minutes, so a run that is limited by time fits its schedule to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from clearhead.config import ScheduleName
from clearhead.errors import ConfigError


def factor(name: ScheduleName, progress: float, warmup: float, decay: float = 0.0) -> float:
    """The share of the highest rate, in [0, 1]; `warmup` and `decay` are shares of the training."""
    # 1. The warm-up: from 0 to 1.
    rise = progress / warmup if progress < warmup else 1.0
    # 2. What follows it: 1 where the warm-up ends, and less from there on.
    fall = _FALLS[name](progress, warmup, decay)
    # 3. Where they meet, the lower of the two counts, so the rate never jumps.
    return min(rise, fall)


def paper_rate(step: int, dim: int, warmup: int) -> float:
    """D^-0.5 · min(step^-0.5, step · warmup^-1.5): the paper's own formula, whose shape is `inverse_sqrt`."""
    return float(dim**-0.5 * min(step**-0.5, step * warmup**-1.5))


def _inverse_sqrt(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001 - all falls are called alike
    if warmup == 0:
        raise ConfigError(
            "train.schedule=inverse_sqrt falls from the end of its warm-up, and train.warmup=0 leaves none; "
            "choose a warm-up above 0 or another schedule"
        )
    return math.sqrt(warmup / max(progress, warmup))


def _cosine(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001
    return 0.5 * (1 + math.cos(math.pi * _after(progress, warmup)))


def _linear(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001
    return 1 - _after(progress, warmup)


def _stable(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001
    return min(1.0, (1 - progress) / decay) if decay else 1.0


def _after(progress: float, warmup: float) -> float:
    """How much of the training after the warm-up is done."""
    return (progress - warmup) / (1 - warmup) if progress > warmup else 0.0


_FALLS: dict[ScheduleName, Callable[[float, float, float], float]] = {
    "inverse_sqrt": _inverse_sqrt,
    "cosine": _cosine,
    "linear": _linear,
    "stable": _stable,
}


@dataclass
class Progress:
    """How much of the training is done: of its steps or of its minutes, whichever is more.

    `elapsed` is saved with a checkpoint and put back, so that an interrupted run does not get its minutes twice.
    """

    max_steps: int
    max_minutes: float | None = None
    elapsed: float = 0.0  # seconds spent

    def spend(self, seconds: float) -> None:
        """Some time has gone by."""
        self.elapsed += seconds

    def share(self, step: float) -> float:
        """What is done after so many steps, in [0, 1]; step + ½ is the middle of the one to come."""
        of_steps = step / self.max_steps if self.max_steps else 1.0
        of_time = self.elapsed / (60 * self.max_minutes) if self.max_minutes else 0.0
        return min(1.0, max(of_steps, of_time))
