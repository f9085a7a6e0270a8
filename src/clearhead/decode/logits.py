"""From logits to the next token: logits processors, sampling filters, and the samplers that use them.

Logits processors depend on the tokens so far (banned and repeated tokens) and hold for greedy, sampled and searched
texts alike. Sampling filters (temperature, top-k, top-p, min-p) shape the distribution that is sampled from.
Both are pure functions, applied one after the other.

No processor leaves a row without any possible token: where it would forbid every token, it does not apply to that row.

    B rows, T tokens so far (prompt and generated), V vocabulary
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random

import torch
from torch import Tensor

from clearhead.decode.settings import Settings

# logits (B, V), tokens so far (B, T), how many of them are the prompt (B,) -> logits (B, V)
LogitsProcessor = Callable[[Tensor, Tensor, Tensor], Tensor]
SamplingFilter = Callable[[Tensor], Tensor]  # logits (B, V) -> logits (B, V)
Sampler = Callable[[Tensor, list[float]], Tensor]  # logits (B, V), a random number in [0, 1) per row -> tokens (B,)
Chosen = tuple[Sequence[int], Sequence[float], Sequence[float]]  # tokens, their log-probabilities and scores; or NaN

ANY_TOKEN = -1  # in a tensor of forced tokens: this row is free to choose
FORCED_LOGIT = -1e9  # the logit of a forced token that the model holds impossible


# --- logits processors ---


def logits_processors(settings: Settings) -> list[LogitsProcessor]:
    """The processors that the settings ask for; those without effect are left out."""
    processors: list[LogitsProcessor] = []
    if settings.repetition_penalty != 1:
        processors.append(lambda logits, so_far, _: penalise_repetition(logits, so_far, settings.repetition_penalty))
    if settings.presence_penalty or settings.frequency_penalty:
        presence, frequency = settings.presence_penalty, settings.frequency_penalty
        processors.append(partial(penalise_generated, presence=presence, frequency=frequency))
    if settings.no_repeat_ngram:
        processors.append(lambda logits, so_far, _: ban_repeated_ngrams(logits, so_far, settings.no_repeat_ngram))
    if settings.banned_tokens:
        processors.append(lambda logits, *_: ban_tokens(logits, settings.banned_tokens))
    return processors


def apply_processors(processors: Sequence[LogitsProcessor], logits: Tensor, so_far: Tensor, prompts: Tensor) -> Tensor:
    """Logits (B, V), tokens so far (B, T) and how many of them are the prompt (B,) -> logits (B, V)."""
    for processor in processors:
        logits = processor(logits, so_far, prompts)
    return logits


def penalise_repetition(logits: Tensor, so_far: Tensor, penalty: float) -> Tensor:
    """Divide the positive and multiply the negative logits of all tokens that occurred before (CTRL)."""
    old = logits.gather(1, so_far)  # (B, T)
    return logits.scatter(1, so_far, torch.where(old > 0, old / penalty, old * penalty))


def penalise_generated(logits: Tensor, so_far: Tensor, prompts: Tensor, presence: float, frequency: float) -> Tensor:
    """Take `presence` off the logits of tokens that were generated before, and `frequency` for each time (OpenAI)."""
    is_generated = torch.arange(so_far.size(1), device=so_far.device) >= prompts.unsqueeze(1)  # (B, T)
    times = torch.zeros_like(logits).scatter_add(1, so_far, is_generated.to(logits.dtype))  # (B, V)
    return logits - (presence * (times > 0) + frequency * times)


def ban_tokens(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """Make these tokens impossible."""
    banned = torch.zeros_like(logits, dtype=torch.bool)
    banned[:, list(tokens)] = True
    return _ban(logits, banned)


def ban_repeated_ngrams(logits: Tensor, so_far: Tensor, size: int) -> Tensor:
    """Make every token impossible that would complete an n-gram of `size` tokens that occurred before."""
    if so_far.size(1) < size:
        return logits
    ngrams = so_far.unfold(1, size, 1)  # (B, T - size + 1, size)
    current = so_far[:, so_far.size(1) - size + 1 :].unsqueeze(1)  # (B, 1, size - 1)
    again = (ngrams[:, :, :-1] == current).all(-1)  # (B, T - size + 1)
    banned = torch.zeros_like(logits, dtype=torch.int64).scatter_add(1, ngrams[:, :, -1], again.long()) > 0
    return _ban(logits, banned)


def force_token(logits: Tensor, tokens: Tensor | None) -> Tensor:
    """Leave one possible token (B,) in each row, or all where it is ANY_TOKEN.

    The forced token keeps its logit, or gets FORCED_LOGIT if it was impossible.
    """
    if tokens is None:
        return logits
    forced = tokens.clamp(min=0).unsqueeze(1)  # (B, 1)
    logit = logits.gather(1, forced).clamp(min=FORCED_LOGIT)
    alone = torch.full_like(logits, -torch.inf).scatter(1, forced, logit)
    return torch.where((tokens == ANY_TOKEN).unsqueeze(1), logits, alone)


def _ban(logits: Tensor, banned: Tensor) -> Tensor:
    """-inf where banned (B, V), except in rows where no token would be left."""
    any_left = (~banned & (logits > -torch.inf)).any(-1, keepdim=True)  # (B, 1)
    return logits.masked_fill(banned & any_left, -torch.inf)


# --- sampling ---


def make_sampler(settings: Settings) -> Sampler:
    """The function that picks tokens (B,) from processed logits (B, V): the most likely, or samples.

    The random numbers are the caller's, one per row, so that a row's text does not depend on the rest of the batch.
    """
    if settings.temperature == 0:
        return lambda logits, _: logits.max(-1).indices  # on a CPU faster than argmax
    filters = sampling_filters(settings)

    def sampler(logits: Tensor, random: list[float]) -> Tensor:
        shaped = logits.double()
        for each in filters:
            shaped = each(shaped)
        return sample(shaped, random)

    return sampler


def sampling_filters(settings: Settings) -> list[SamplingFilter]:
    """Temperature, then top-k, top-p and min-p."""
    return [
        partial(apply_temperature, temperature=settings.temperature),
        partial(top_k_filter, k=settings.top_k),
        partial(top_p_filter, p=settings.top_p),
        partial(min_p_filter, p=settings.min_p),
    ]


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Sharpen the distribution below 1, flatten it above; the most likely token gets the logit 0."""
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def top_k_filter(logits: Tensor, k: int | None) -> Tensor:
    """Keep the k most likely tokens, and those exactly as likely as the last of them."""
    if k is None or k >= logits.size(-1):
        return logits
    lowest = logits.topk(k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < lowest, -torch.inf)


def top_p_filter(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest tokens with total probability p; the most likely one always stays."""
    if p >= 1:
        return logits
    ordered, index = logits.sort(descending=True, dim=-1)
    probability = ordered.softmax(-1)
    beyond = probability.cumsum(-1) - probability >= p  # the tokens before it were already enough
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, index, beyond), -torch.inf)


def min_p_filter(logits: Tensor, p: float) -> Tensor:
    """Keep the tokens with at least p times the highest probability."""
    if p == 0:
        return logits
    probability = logits.softmax(-1)
    return logits.masked_fill(probability < p * probability.amax(-1, keepdim=True), -torch.inf)


def row_generator(seed: int | None, row_seed: int) -> Random:
    """The random numbers of one row; they depend on the seed and the row's own seed alone."""
    return Random() if seed is None else Random(f"{seed}, {row_seed}")


def sample(logits: Tensor, random: list[float]) -> Tensor:
    """Logits (B, V), numbers in [0, 1) (B) -> tokens (B,): the first at which the cumulative probability exceeds it."""
    cumulative = logits.double().softmax(-1).cumsum(-1)
    share = torch.tensor(random, dtype=cumulative.dtype, device=cumulative.device).unsqueeze(1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, share, right=True).squeeze(1)


# --- rows with different settings ---


@dataclass
class RowText:
    """What the next token of a row depends on besides its logits."""

    ids: array[int]  # int32, the prompt and what was generated; those without effect on it may be left out
    forced: int = ANY_TOKEN  # the token that must be chosen
    prompt: int = 0  # how many of the ids are the prompt


def looks_back(settings: Settings) -> bool:
    """Whether what is chosen depends on the tokens so far."""
    penalised = settings.presence_penalty != 0 or settings.frequency_penalty != 0
    return penalised or settings.repetition_penalty != 1 or settings.no_repeat_ngram > 0


class RowSampler:
    """Chooses the next tokens of rows that have these settings."""

    def __init__(self, settings: Sequence[Settings]):
        self.settings = settings

    def __call__(self, logits: Tensor, random: Sequence[float], texts: Sequence[RowText] | None) -> Chosen:
        """Logits (B, V), a random number in [0, 1) for each row, and its text where a row has one -> what is chosen.

        Rows with equal settings are computed together, if texts that they look back at are of equal length.
        """
        batches: dict[tuple[Settings, int], list[int]] = defaultdict(list)
        for row, settings in enumerate(self.settings):
            batches[settings, 0 if texts is None or not looks_back(settings) else len(texts[row].ids)].append(row)
        count = len(self.settings)
        tokens, logprobs, scores = [0] * count, [math.nan] * count, [math.nan] * count
        for (settings, _), rows in batches.items():
            own = logits if len(rows) == count else logits[rows]
            chosen = _choose_alike(settings, own, [random[i] for i in rows], texts and [texts[i] for i in rows])
            for row, token, logprob, score in zip(rows, *chosen, strict=True):
                tokens[row], logprobs[row], scores[row] = token, logprob, score
        return tokens, logprobs, scores


_processors, _sampler = lru_cache(maxsize=256)(logits_processors), lru_cache(maxsize=256)(make_sampler)


def _choose_alike(
    settings: Settings, logits: Tensor, random: list[float], texts: Sequence[RowText] | None
) -> tuple[list[int], list[float], list[float]]:
    processed = logits
    if texts is not None and any(text.forced != ANY_TOKEN for text in texts):
        processed = force_token(logits, torch.tensor([text.forced for text in texts], device=logits.device))
    if processors := _processors(settings):
        known = texts if texts is not None and looks_back(settings) else [RowText(array("i"))] * len(logits)
        so_far = torch.tensor([text.ids.tolist() for text in known], dtype=torch.int64, device=logits.device)  # (B, T)
        prompts = torch.tensor([text.prompt for text in known], device=logits.device)  # (B,)
        processed = apply_processors(processors, processed, so_far, prompts)
    token = _sampler(settings)(processed, random)  # (B,)
    if not settings.return_logprobs:
        nothing = [math.nan] * len(logits)
        return token.tolist(), nothing, nothing
    total, index = logits.logsumexp(-1), token.unsqueeze(1)  # (B,), (B, 1)
    own, score = (x.gather(1, index).squeeze(1) - total for x in (logits, processed))
    return token.tolist(), own.tolist(), score.tolist()
