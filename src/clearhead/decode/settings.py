"""What a user may set about writing: how long, how carefully, how freely. Knows nothing of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Self

from clearhead.errors import ConfigError, nearest


@dataclass(frozen=True)
class Settings:
    """How a text is written: greedily, drawn at random (`temperature` above 0), or searched for (`beams` above 1).

    Values that are out of range or contradict each other are refused.
    """

    longest: int = 256  # tokens written at most
    forced: tuple[int, ...] = ()  # the tokens that every text begins with
    banned: tuple[int, ...] = ()  # the tokens that are never written
    no_repeat: int = 0  # no run of so many tokens is written twice; 0 = may repeat
    repetition_penalty: float = 1.0  # above 1, what was said before becomes less likely
    length_penalty: float = 1.0  # a score is the log-probability over length^penalty; 0 = the sum
    scored: bool = False  # scores and log-probabilities for greedy and drawn texts too; a search always has them

    beams: int = 1  # beginnings kept
    n_best: int = 1  # hypotheses given
    coverage_penalty: float = 0.0  # what it costs to leave parts of the source unread
    groups: int = 1  # beams in so many groups that should differ
    diversity: float = 0.0  # what a token costs for each beam of an earlier group that chose it at the same step

    temperature: float = 0.0  # 0 = always the likeliest
    top_k: int | None = None  # draw from the k likeliest
    top_p: float = 1.0  # draw from the likeliest that together have probability p
    min_p: float = 0.0  # draw from those at least so likely, relative to the likeliest
    seed: int | None = None  # the same seed draws the same text

    def __post_init__(self) -> None:
        for problem in chain(self._out_of_range(), self._contradictions()):
            raise ConfigError(problem)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """The settings of these names; one that does not exist is refused with the nearest that does."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ConfigError(f"unknown setting {name}; {nearest(name, known)}")
        return cls(**values)

    def check_vocabulary(self, size: int) -> None:
        """Refuse tokens that a vocabulary of this size does not have."""
        for name in ("forced", "banned"):
            for token in getattr(self, name):
                if token >= size:
                    raise ConfigError(f"{name} token {token} is not in the vocabulary of {size} tokens")

    def _out_of_range(self) -> Iterator[str]:
        """A sentence for each value that is wrong whatever the others are; NaN is never in range."""
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and not lowest <= value < float("inf"):
                yield f"{name}={value} must be {lowest} or more"
        for name in ("forced", "banned"):
            for token in getattr(self, name):
                if token < 0:
                    yield f"{name} token {token} is negative; tokens count from 0"
        if not 0 < self.top_p <= 1:
            yield f"top_p={self.top_p} must be above 0 and at most 1"
        if not 0 <= self.min_p < 1:
            yield f"min_p={self.min_p} must be 0 or more and below 1"

    def _contradictions(self) -> Iterator[str]:
        """A sentence for each pair of values that do not go together."""
        if self.n_best > self.beams:
            yield f"n_best={self.n_best} hypotheses need as many beams, and beams={self.beams}"
        if self.beams % self.groups:
            yield f"beams={self.beams} cannot be divided into groups={self.groups}"
        if self.diversity and self.groups == 1:
            yield f"diversity={self.diversity} is between groups, and groups=1; choose more groups"
        if self.coverage_penalty and self.beams == 1:
            yield f"coverage_penalty={self.coverage_penalty} ranks what a search finds, and beams=1; choose more beams"
        if set(self.forced) & set(self.banned):
            token = min(set(self.forced) & set(self.banned))
            yield f"token {token} is both forced and banned"
        if self.beams > 1:
            yield from (
                f"{name}={getattr(self, name)} draws at random and beams={self.beams} searches; choose one of them"
                for name, usual in _DRAWING.items()
                if getattr(self, name) != usual
            )


_LOWEST = {
    "longest": 0,
    "beams": 1,
    "n_best": 1,
    "groups": 1,
    "coverage_penalty": 0,
    "diversity": 0,
    "length_penalty": 0,
    "no_repeat": 0,
    "repetition_penalty": 1,
    "temperature": 0,
    "top_k": 1,
    "seed": 0,
}
_DRAWING = {"temperature": 0.0, "top_k": None, "top_p": 1.0, "min_p": 0.0}
