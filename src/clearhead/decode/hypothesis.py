"""What has been written."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A text, its tokens without the stop, and how likely it is.

    The log-probabilities are the model's own, before any rule; the last is that of the stop, unless the text was cut
    at the longest length. The score is their sum over length^penalty, where the length counts the stop too, less what
    the repetition and coverage penalties took.
    """

    ids: list[int]
    score: float = math.nan  # not a number where it was not asked for
    log_probabilities: tuple[float, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether it ends with a stop; only known where log-probabilities are."""
        return len(self.log_probabilities) > len(self.ids)
