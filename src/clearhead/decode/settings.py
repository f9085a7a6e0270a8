"""How a text is generated: its length, its search, its sampling, its constraints. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Self

from clearhead.errors import ConfigError, nearest

_RENAMED = {  # since version 0.1
    "longest": "max_tokens",
    "forced": "prefix_tokens",
    "banned": "banned_tokens",
    "no_repeat": "no_repeat_ngram",
    "scored": "return_logprobs",
    "beams": "beam_width",
    "groups": "beam_groups",
    "diversity": "diversity_penalty",
}


@dataclass(frozen=True)
class Settings:
    """How to generate: greedily, by sampling (`temperature` above 0) or by beam search (`beam_width` above 1).

    Values that are out of range or contradict each other raise ConfigError.
    """

    max_tokens: int = 256  # maximum number of generated tokens
    prefix_tokens: tuple[int, ...] = ()  # the tokens that every text begins with
    banned_tokens: tuple[int, ...] = ()  # the tokens that are never generated
    no_repeat_ngram: int = 0  # no n-gram of this size occurs twice; 0 = off
    repetition_penalty: float = 1.0  # above 1, tokens that occurred before become less likely (CTRL)
    length_penalty: float = 1.0  # score = log-probability / length^penalty; 0 = the plain sum
    return_logprobs: bool = (
        False  # scores and log-probabilities for greedy and sampled texts; beam search has them anyway
    )

    beam_width: int = 1  # hypotheses kept at each step
    n_best: int = 1  # hypotheses returned
    coverage_penalty: float = 0.0  # cost of leaving parts of the source unattended (Wu et al., 2016)
    beam_groups: int = 1  # the beams are divided into this many groups (Vijayakumar et al., 2016)
    diversity_penalty: float = 0.0  # cost of a token for each beam of an earlier group that chose it at the same step

    temperature: float = 0.0  # 0 = greedy
    top_k: int | None = None  # sample from the k most likely tokens
    top_p: float = 1.0  # sample from the smallest set of tokens with total probability p
    min_p: float = 0.0  # sample from tokens with at least this share of the highest probability
    seed: int | None = None  # the same seed samples the same text

    def __post_init__(self) -> None:
        for problem in chain(self._out_of_range(), self._contradictions()):
            raise ConfigError(problem)

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Settings from keyword arguments; an unknown name raises ConfigError with the nearest known one."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                hint = f"it is called {_RENAMED[name]}" if name in _RENAMED else nearest(name, known)
                raise ConfigError(f"unknown setting {name}; {hint}")
        return cls(**values)

    def shared(self) -> Self:
        """The settings without those that rows of one search may differ in: length, seed and prefix."""
        return replace(self, max_tokens=0, seed=None, prefix_tokens=())

    def check_vocabulary(self, size: int) -> None:
        """Raise ConfigError for prefix or banned tokens outside a vocabulary of this size."""
        for name in _TOKEN_LISTS:
            for token in getattr(self, name):
                if token >= size:
                    raise ConfigError(f"{name}: there is no token {token} in the vocabulary of {size} tokens")

    def _out_of_range(self) -> Iterator[str]:
        """One sentence per value that is wrong on its own; NaN is never in range."""
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and not lowest <= value < float("inf"):
                yield f"{name}={value} must be {lowest} or more"
        for name in _TOKEN_LISTS:
            for token in getattr(self, name):
                if token < 0:
                    yield f"{name}: token {token} is negative; tokens count from 0"
        if not 0 < self.top_p <= 1:
            yield f"top_p={self.top_p} must be above 0 and at most 1"
        if not 0 <= self.min_p < 1:
            yield f"min_p={self.min_p} must be 0 or more and below 1"

    def _contradictions(self) -> Iterator[str]:
        """One sentence per pair of values that exclude each other."""
        if self.n_best > self.beam_width:
            yield f"n_best={self.n_best} needs at least as many beams, and beam_width={self.beam_width}"
        if self.beam_width % self.beam_groups:
            yield f"beam_width={self.beam_width} is not divisible by beam_groups={self.beam_groups}"
        if self.diversity_penalty and self.beam_groups == 1:
            yield f"diversity_penalty={self.diversity_penalty} needs more than one group, and beam_groups=1"
        if self.coverage_penalty and self.beam_width == 1:
            yield f"coverage_penalty={self.coverage_penalty} ranks the results of a beam search, and beam_width=1"
        if both := set(self.prefix_tokens) & set(self.banned_tokens):
            yield f"token {min(both)} is in both prefix_tokens and banned_tokens"
        if self.beam_width > 1:
            yield from (
                f"{name}={getattr(self, name)} is for sampling and beam_width={self.beam_width} for beam search; "
                "choose one of them"
                for name, default in _SAMPLING.items()
                if getattr(self, name) != default
            )


_TOKEN_LISTS = ("prefix_tokens", "banned_tokens")
_LOWEST = {
    "max_tokens": 0,
    "beam_width": 1,
    "n_best": 1,
    "beam_groups": 1,
    "coverage_penalty": 0,
    "diversity_penalty": 0,
    "length_penalty": 0,
    "no_repeat_ngram": 0,
    "repetition_penalty": 1,
    "temperature": 0,
    "top_k": 1,
    "seed": 0,
}
_SAMPLING = {"temperature": 0.0, "top_k": None, "top_p": 1.0, "min_p": 0.0}
