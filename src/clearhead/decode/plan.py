"""Prompts of unequal length in one batch, without padding.

All rows read the tokens of the shortest prompt at once. From then on every row takes one token at a time: its own next
one while its prompt lasts, then those that are forced, then what it chooses. So all rows are always equally long, and
each has read exactly what it would have read alone.

    B rows, T tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.decode.rules import FREE
from clearhead.decode.settings import Settings
from clearhead.errors import ConfigError


@dataclass(frozen=True)
class Prompts:
    """The rows of a batch: what each goes on from, and where it ends."""

    ids: Sequence[Sequence[int]]  # of each row, at least one token
    stop: int | None = None  # the token that ends a text
    longest: Sequence[int] | None = None  # the limit of each row, where it is not that of the settings
    numbers: Sequence[int] | None = None  # what each row's random draws depend on, instead of 0, 1, 2, …
    device: torch.device | str = "cpu"

    def limits(self, settings: Settings) -> list[int]:
        """How many tokens may be written after each."""
        return [settings.longest] * len(self.ids) if self.longest is None else list(self.longest)


@dataclass(frozen=True)
class Plan:
    """What is known of each row before it is written."""

    known: Tensor  # (B, T) the prompt and the forced tokens, then FREE
    begin: list[int]  # the place of each row's first token that is written
    end: list[int]  # the place after the last one that may be
    stop: int  # FREE where nothing stops

    @classmethod
    def of(cls, prompts: Prompts, settings: Settings) -> Plan:
        """Prompts, then the tokens that are forced."""
        if not all(len(prompt) for prompt in prompts.ids):
            raise ConfigError("a prompt has no token; begin it with the start token")
        rows = [torch.tensor([*prompt, *settings.forced]) for prompt in prompts.ids]
        known = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=FREE).to(prompts.device)
        begin = [len(prompt) for prompt in prompts.ids]
        end = [first + limit for first, limit in zip(begin, prompts.limits(settings), strict=True)]
        return cls(known, begin, end, FREE if prompts.stop is None else prompts.stop)

    def open(self) -> list[int]:
        """The rows that may write anything."""
        return [row for row, (begin, end) in enumerate(zip(self.begin, self.end, strict=True)) if end > begin]

    def filled(self, rows: list[int], so_far: Tensor | None = None) -> Tensor:
        """The tokens so far of these rows, (rows, T), and those after them that are in all of their prompts."""
        upto = min((self.begin[row] for row in rows), default=0)
        if so_far is None:
            return self.known[rows, :upto]
        have = so_far.size(1)
        return so_far if have >= upto else torch.cat((so_far, self.known[rows, have:upto]), dim=1)

    def at(self, place: int, rows: list[int]) -> Tensor | None:
        """The token of each row at a place, (rows,), FREE where it may choose; none where all may."""
        return self.known[rows, place] if place < self.known.size(1) else None

    def ends(self, row: int, place: int, token: int) -> bool:
        """Whether a row has ended with the token at a place: the last one, or a stop that is not of the prompt."""
        return place + 1 >= self.end[row] or (token == self.stop and place >= self.begin[row])
