"""Writing token by token: the likeliest or a drawn one. What is written can be had as it comes, or whole.

B rows, T tokens, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from clearhead.decode.beam import beam_search
from clearhead.decode.hypothesis import Hypothesis
from clearhead.decode.plan import Plan, Prompts
from clearhead.decode.rules import follow, only, rules_of
from clearhead.decode.sampling import chooser
from clearhead.decode.settings import Settings
from clearhead.decode.stepper import Searching, Stepper, move, read
from clearhead.errors import ConfigError


@dataclass(frozen=True)
class Token:
    """The next token of a row."""

    row: int
    id: int
    log_probability: float = math.nan  # the model's own; not a number where it was not asked for
    score: float = math.nan  # the same after the rules about what was written


def write(model: Stepper, state: Any, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
    """Go on from each prompt until the stop token or the longest length: the hypotheses of each row, the best first."""
    if isinstance(model, Searching) and (found := model.search(state, prompts, settings)) is not None:
        return found
    if settings.beams > 1:
        return beam_search(model, state, prompts, settings)
    written: list[list[Token]] = [[] for _ in prompts.ids]
    for token in chain.from_iterable(_steps(model, state, prompts, settings)):
        written[token.row].append(token)
    return [[_whole(row, prompts.stop, settings)] for row in written]


def steps(model: Stepper, state: Any, prompts: Prompts, settings: Settings) -> Iterator[list[Token]]:
    """What `write` writes, as it is written: after each step a new token of every row that still goes on."""
    for step in _steps(model, state, prompts, settings):
        if going := [token for token in step if token.id != prompts.stop]:
            yield going


@torch.inference_mode()
def _steps(model: Stepper, state: Any, prompts: Prompts, settings: Settings) -> Iterator[list[Token]]:
    """The tokens of each step, stops too; a row that has ended leaves the batch."""
    if settings.beams > 1:
        raise ConfigError(f"beams={settings.beams} are compared at the end; only beams=1 can be seen as it is written")
    if not prompts.ids:
        return
    plan = Plan.of(prompts, settings)
    rules, choose = rules_of(settings), chooser(settings, prompts.numbers or range(len(prompts.ids)))
    rows = plan.open()
    state = move(model, state, rows, len(prompts.ids), prompts.device)
    so_far, known = plan.filled(rows), 0  # (rows, T), and how much of it the model has read
    while rows:
        logits, state = read(model, so_far[:, known:], state)
        known = so_far.size(1)
        settings.check_vocabulary(logits.size(-1))
        shaped = follow(rules, only(logits, plan.at(known, rows)), so_far)
        token = choose(shaped, [row if known >= plan.begin[row] else None for row in rows])  # (rows,)
        facts = (token, *(_log_probabilities(token, logits, shaped) if settings.scored else ()))
        step = [Token(*each) for each in zip(rows, *(fact.tolist() for fact in facts), strict=True)]
        yield [each for each in step if known >= plan.begin[each.row]]
        kept = [i for i, each in enumerate(step) if not plan.ends(each.row, known, each.id)]
        state = move(model, state, kept, len(rows), prompts.device)
        so_far = torch.cat((so_far, token.unsqueeze(1)), dim=1)
        if len(kept) < len(rows):
            rows, so_far = [rows[i] for i in kept], so_far[kept]
        so_far = plan.filled(rows, so_far)


def _log_probabilities(token: Tensor, logits: Tensor, shaped: Tensor) -> tuple[Tensor, Tensor]:
    """Of the tokens (rows,), by the model and after the rules."""
    total = logits.logsumexp(-1)  # (rows,)
    own, score = (x.gather(1, token.unsqueeze(1)).squeeze(1) - total for x in (logits, shaped))
    return own, score


def _whole(written: list[Token], stop: int | None, settings: Settings) -> Hypothesis:
    """The tokens of one row."""
    ids = [token.id for token in written if token.id != stop]
    if not settings.scored:
        return Hypothesis(ids)
    score = sum(token.score for token in written) / max(1, len(written)) ** settings.length_penalty
    return Hypothesis(ids, score, tuple(token.log_probability for token in written))
