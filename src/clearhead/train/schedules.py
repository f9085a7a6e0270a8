"""Learning-rate schedules: a factor in [0, 1] of the highest rate, as a function of progress through training.

Every schedule rises linearly during the warm-up, then falls in its own way:

    inverse_sqrt   √(warmup / progress)                     "Attention Is All You Need"
    cosine         ½ (1 + cos(π · done))                    to 0; done = share of the training after the warm-up
    linear         1 - done                                 to 0
    stable         1, then a linear decay to 0 at the end

Progress is a share of the steps or of the minutes, so a run limited by time still completes its schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from clearhead.config import ScheduleName
from clearhead.errors import ConfigError


def factor(name: ScheduleName, progress: float, warmup: float, decay: float = 0.0) -> float:
    """The factor of the highest rate, in [0, 1]; `warmup` and `decay` are shares of the training."""
    # 1. Warm-up: from 0 to 1.
    rise = progress / warmup if progress < warmup else 1.0
    # 2. After it: 1 where the warm-up ends, then falling.
    fall = _FALLS[name](progress, warmup, decay)
    # 3. Where they overlap the lower counts, so the rate never jumps.
    return min(rise, fall)


def paper_rate(step: int, dim: int, warmup: int) -> float:
    """D^-0.5 · min(step^-0.5, step · warmup^-1.5): the paper's formula, whose shape is `inverse_sqrt`."""
    return float(dim**-0.5 * min(step**-0.5, step * warmup**-1.5))


def _inverse_sqrt(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001 - all share one signature
    if warmup == 0:
        raise ConfigError(
            "train.schedule=inverse_sqrt falls from the end of its warm-up, and train.warmup=0 leaves none; "
            "choose a warm-up above 0 or another schedule"
        )
    return math.sqrt(warmup / max(progress, warmup))


def _cosine(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001
    return 0.5 * (1 + math.cos(math.pi * _done(progress, warmup)))


def _linear(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001
    return 1 - _done(progress, warmup)


def _stable(progress: float, warmup: float, decay: float) -> float:  # noqa: ARG001
    return min(1.0, (1 - progress) / decay) if decay else 1.0


def _done(progress: float, warmup: float) -> float:
    """The share done of the training after the warm-up."""
    return (progress - warmup) / (1 - warmup) if progress > warmup else 0.0


_FALLS: dict[ScheduleName, Callable[[float, float, float], float]] = {
    "inverse_sqrt": _inverse_sqrt,
    "cosine": _cosine,
    "linear": _linear,
    "stable": _stable,
}


@dataclass
class Progress:
    """Progress through training: the share of its steps or of its time, whichever is larger.

    `elapsed` is saved in checkpoints, so that a resumed run does not get its minutes twice.
    """

    max_steps: int | None
    max_minutes: float | None = None
    elapsed: float = 0.0  # seconds spent: preparation, steps and evaluations
    reserve: float = 0.0  # seconds kept for the last evaluation

    def share(self, step: float) -> float:
        """Share done after `step` steps, in [0, 1]; step + ½ is the middle of the next one."""
        of_steps = 0.0 if self.max_steps is None else step / self.max_steps if self.max_steps else 1.0
        of_time = self.elapsed / max(60 * self.max_minutes - self.reserve, 1e-9) if self.max_minutes else 0.0
        return min(1.0, max(of_steps, of_time))
