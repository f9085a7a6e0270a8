"""What the token loop generates: rows, each with its own prompt, settings and callbacks. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from clearhead.decode.settings import Settings
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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


@dataclass(frozen=True)
class Token:
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
    on_token: Callable[[Token], None] | None = None
    on_end: Callable[[Row], None] | None = None
    on_error: Callable[[Row, Exception], None] | None = None  # a failed step; without it `TokenLoop.step` raises

    ids: list[int] = field(init=False)  # the prompt and what was generated, without the stop token
    end: EndReason | None = field(default=None, init=False)
    hypotheses: list[Hypothesis] = field(default_factory=list, init=False)  # the best first, once it has ended
    cancelled: bool = field(default=False, init=False)

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
