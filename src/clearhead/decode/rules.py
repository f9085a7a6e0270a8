"""Rules: pure functions that change the logits of the next token, in a chain that every way of writing uses.

Two kinds. Rules about what was written (forced, banned and repeated tokens) hold for greedy, drawn and searched texts
alike. Rules about chance (temperature, top-k, top-p, min-p) shape what is drawn from.

No rule leaves a row without any possible token: where it would forbid all that is left, it is not applied to that row.

    B rows, T tokens so far (the prompt and what was written), V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from clearhead.decode.settings import Settings

Rule = Callable[[Tensor, Tensor], Tensor]  # logits (B, V), tokens so far (B, T) -> logits (B, V)
Chance = Callable[[Tensor], Tensor]  # logits (B, V) -> logits (B, V)

FREE = -1  # in the place of a token: any may stand here
UNLIKELY = -1e9  # the logit of a forced token that a model holds impossible


def rules_of(settings: Settings) -> list[Rule]:
    """What the settings say about what may be written; a rule without effect is left out."""
    rules: list[Rule] = []
    if settings.repetition_penalty != 1:
        rules.append(partial(penalise_repetition, penalty=settings.repetition_penalty))
    if settings.no_repeat:
        rules.append(partial(without_repeats, size=settings.no_repeat))
    if settings.banned:
        rules.append(lambda logits, _: without(logits, settings.banned))
    return rules


def chances_of(settings: Settings) -> list[Chance]:
    """What the settings say about chance."""
    return [
        partial(with_temperature, temperature=settings.temperature),
        partial(only_top_k, k=settings.top_k),
        partial(only_top_p, p=settings.top_p),
        partial(only_min_p, p=settings.min_p),
    ]


def follow(rules: Sequence[Rule], logits: Tensor, so_far: Tensor) -> Tensor:
    """One rule after the other."""
    for rule in rules:
        logits = rule(logits, so_far)
    return logits


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Below 1 the likely become likelier, above 1 all become more alike; the likeliest has the logit 0."""
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def only_top_k(logits: Tensor, k: int | None) -> Tensor:
    """The k likeliest tokens, and those exactly as likely as the last of them."""
    if k is None or k >= logits.size(-1):
        return logits
    lowest = logits.topk(k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < lowest, -torch.inf)


def only_top_p(logits: Tensor, p: float) -> Tensor:
    """The fewest tokens that together have probability p; the likeliest always stays."""
    if p >= 1:
        return logits
    ordered, place = logits.sort(descending=True, dim=-1)
    probability = ordered.softmax(-1)
    beyond = probability.cumsum(-1) - probability >= p  # what came before was already enough
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, place, beyond), -torch.inf)


def only_min_p(logits: Tensor, p: float) -> Tensor:
    """The tokens at least p times as likely as the likeliest."""
    if p == 0:
        return logits
    probability = logits.softmax(-1)
    return logits.masked_fill(probability < p * probability.amax(-1, keepdim=True), -torch.inf)


def penalise_repetition(logits: Tensor, so_far: Tensor, penalty: float) -> Tensor:
    """Every token that is there already: a positive logit is divided, a negative one multiplied (CTRL)."""
    there = logits.gather(1, so_far)  # (B, T)
    return logits.scatter(1, so_far, torch.where(there > 0, there / penalty, there * penalty))


def without(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """None of these tokens."""
    hidden = torch.zeros_like(logits, dtype=torch.bool)
    hidden[:, list(tokens)] = True
    return _hide(logits, hidden)


def without_repeats(logits: Tensor, so_far: Tensor, size: int) -> Tensor:
    """No token that would end a run of `size` tokens that is there already."""
    if so_far.size(1) < size:
        return logits
    runs = so_far.unfold(1, size, 1)  # (B, T - size + 1, size)
    begun = so_far[:, so_far.size(1) - size + 1 :].unsqueeze(1)  # (B, 1, size - 1)
    again = (runs[:, :, :-1] == begun).all(-1)  # (B, T - size + 1)
    hidden = torch.zeros_like(logits, dtype=torch.int64).scatter_add(1, runs[:, :, -1], again.long()) > 0
    return _hide(logits, hidden)


def only(logits: Tensor, tokens: Tensor | None) -> Tensor:
    """In each row the token (B,) that is forced, or any where it is FREE; without tokens, any in all rows.

    The token keeps its logit, or gets a very low one if it was impossible.
    """
    if tokens is None:
        return logits
    forced = tokens.clamp(min=0).unsqueeze(1)  # (B, 1)
    logit = logits.gather(1, forced).clamp(min=UNLIKELY)
    alone = torch.full_like(logits, -torch.inf).scatter(1, forced, logit)
    return torch.where((tokens == FREE).unsqueeze(1), logits, alone)


def _hide(logits: Tensor, hidden: Tensor) -> Tensor:
    """Impossible where hidden (B, V), except in rows where nothing would be left."""
    left = (~hidden & (logits > -torch.inf)).any(-1, keepdim=True)  # (B, 1)
    return logits.masked_fill(hidden & left, -torch.inf)
