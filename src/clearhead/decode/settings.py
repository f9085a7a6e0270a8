"""What is generated and how: settings (length, search, sampling, constraints), prompts and rows, and the results.

Needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from clearhead.errors import ConfigError, nearest

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
    stop_tokens: tuple[int, ...] = ()  # the tokens that end a text, beside the model's stop token
    no_repeat_ngram: int = 0  # no n-gram of this size occurs twice; 0 = off
    repetition_penalty: float = 1.0  # above 1, tokens that occurred before become less likely (CTRL)
    presence_penalty: float = 0.0  # taken off the logit of every token that was generated before
    frequency_penalty: float = 0.0  # and for each time that it was
    length_penalty: float = 1.0  # score = log-probability / length^penalty; 0 = the plain sum
    return_logprobs: bool = False  # of greedy and sampled texts too: scores and log-probabilities

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
        """Raise ConfigError for tokens of a list that are outside a vocabulary of this size, or if all are banned."""
        for name in _TOKEN_LISTS:
            for token in getattr(self, name):
                if token >= size:
                    raise ConfigError(f"{name}: there is no token {token} in the vocabulary of {size} tokens")
        if len(set(self.banned_tokens)) == size:
            raise ConfigError(f"banned_tokens: these are all {size} tokens of the vocabulary; leave out at least one")

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
        for name in ("presence_penalty", "frequency_penalty"):
            if not -100 <= getattr(self, name) <= 100:
                yield f"{name}={getattr(self, name)} must be between -100 and 100"
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


_TOKEN_LISTS = ("prefix_tokens", "banned_tokens", "stop_tokens")
_LOWEST = {
    **{"max_tokens": 0, "beam_width": 1, "n_best": 1, "beam_groups": 1, "coverage_penalty": 0, "diversity_penalty": 0},
    **{"length_penalty": 0, "no_repeat_ngram": 0, "repetition_penalty": 1, "temperature": 0, "top_k": 1, "seed": 0},
}
_SAMPLING = {"temperature": 0.0, "top_k": None, "top_p": 1.0, "min_p": 0.0}


# --- prompts, rows and what comes out ---

EndReason = Literal["stop", "length"]  # the stop token, or max_tokens


@dataclass(frozen=True)
class Hypothesis:
    """A generated text: its tokens without the stop token, and how likely it is.

    The log-probabilities are the model's own, before any processor; the last is that of the stop token, unless the text
    was cut at max_tokens. The score is their sum over length^penalty, where the length counts the stop token too, less
    what the repetition and coverage penalties took.
    """

    ids: list[int]
    score: float = math.nan  # NaN unless the settings ask for log-probabilities
    logprobs: tuple[float, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether it ends with the stop token; only known where there are log-probabilities."""
        return len(self.logprobs) > len(self.ids)


class Token(NamedTuple):
    """The next token of a row, the stop token included."""

    row: Row
    id: int
    end: EndReason | None = None  # set for the last token of a text
    logprob: float = math.nan  # the model's own; NaN unless settings.return_logprobs
    score: float = math.nan  # the same after the logits processors
    logits: Tensor | None = None  # (V,) the model's own, before any processor; only with row.keep_logits


@dataclass(eq=False)
class Row:
    """One text to generate. The callbacks run in the thread that calls `TokenLoop.step`.

    A row that searches (beam_width above 1) calls only `on_end`: its hypotheses are not known before.
    """

    prompt: Sequence[int]  # at least one token
    settings: Settings = field(default_factory=Settings)
    stop: int | None = None  # the token that ends the text
    max_tokens: int | None = None  # instead of that of the settings
    row_seed: int = 0  # together with settings.seed it determines all random numbers of this row
    index: int = 0  # of the prompt that it continues
    keep_logits: bool = False  # pass the model's logits to on_token
    on_prompt: Callable[[Tensor, int], None] | None = None  # logits (T, V) of prompt[start : start + T], and start
    on_read: Callable[[Any, int], None] | None = None  # the prompt was read: the state, and its row in it
    heads: Sequence[Any] = ()  # attention heads that are seen, as the model's `step_seeing` knows them
    on_seen: Callable[[list[Tensor]], None] | None = None  # of each head (T, keys): T tokens that were read, in order
    on_token: Callable[[Token], None] | None = None
    on_end: Callable[[Row], None] | None = None
    on_error: Callable[[Row, Exception], None] | None = None  # a failed step; without it `TokenLoop.step` raises

    ids: list[int] = field(init=False)  # the prompt and what was generated, without the stop token
    end: EndReason | None = field(default=None, init=False)
    hypotheses: list[Hypothesis] = field(default_factory=list, init=False)  # the best first, once it has ended
    cancelled: bool = field(default=False, init=False)
    see_rest: Callable[[], None] | None = field(default=None, init=False)  # with heads: see the last token too

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise ConfigError("a prompt has no token; begin it with the start token")
        self.ids = list(self.prompt)

    @property
    def limit(self) -> int:
        """The maximum number of generated tokens."""
        return self.settings.max_tokens if self.max_tokens is None else self.max_tokens

    @property
    def generated(self) -> list[int]:
        """The tokens after the prompt, without the stop token."""
        return self.ids[len(self.prompt) :]

    @property
    def active(self) -> bool:
        return self.end is None and not self.cancelled

    def cancel(self) -> None:
        """Leave the loop before its next step; may be called from any thread."""
        self.cancelled = True

    def finish(self, end: EndReason, hypotheses: list[Hypothesis]) -> None:
        """Called by the loop, once."""
        self.end, self.hypotheses = end, hypotheses
        if self.on_end is not None:
            self.on_end(self)


@dataclass(frozen=True)
class Prompts:
    """The prompts of a batch that share their settings."""

    ids: Sequence[Sequence[int]]  # of each row, at least one token
    stop: int | None = None  # the token that ends a text
    max_tokens: Sequence[int] | None = None  # of each row, instead of that of the settings
    row_seeds: Sequence[int] | None = None  # of each row, instead of 0, 1, 2, …
    device: torch.device | str = "cpu"

    def limits(self, settings: Settings) -> list[int]:
        """The maximum number of generated tokens of each row."""
        return [settings.max_tokens] * len(self.ids) if self.max_tokens is None else list(self.max_tokens)

    def rows(self, settings: Settings) -> list[Row]:
        """One row for each prompt, in order."""
        limits, seeds = self.limits(settings), self.row_seeds or range(len(self.ids))
        return [
            Row(ids, settings, self.stop, limit, seed, index)
            for index, (ids, limit, seed) in enumerate(zip(self.ids, limits, seeds, strict=True))
        ]
