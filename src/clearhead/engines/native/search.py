"""Whole texts by native code: greedy generation and plain beam search, with no Python between two tokens.

What decode/ defines beyond that (logits processors, sampling, beam groups, coverage, prompts of unequal length) stays
there, around native steps.

    N sentences, P tokens of a prompt, n hypotheses
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import torch

from clearhead.decode.logits import ANY_TOKEN
from clearhead.decode.rows import Hypothesis, Prompts
from clearhead.decode.settings import Settings
from clearhead.engines.native.layout import CSearchResults, CSearchSettings

if TYPE_CHECKING:
    from clearhead.engines.native.engine import NativeEngine, NativeState

DEFAULTS = Settings()
SUPPORTED = ("max_tokens", "beam_width", "n_best", "length_penalty", "return_logprobs", "seed")


def is_plain(settings: Settings) -> bool:
    """Whether only supported settings differ from their defaults; a seed has no effect without sampling."""
    others = {field.name for field in fields(Settings)}.difference(SUPPORTED)
    return all(getattr(settings, name) == getattr(DEFAULTS, name) for name in others)


def starts_equally(read: int, prompts: Prompts, limits: Sequence[int]) -> bool:
    """Whether nothing was read, all prompts are equally long, and each may be continued."""
    lengths = {len(prompt) for prompt in prompts.ids}
    return read == 0 and len(lengths) == 1 and min(lengths) > 0 and min(limits) > 0


def can_search(model: NativeEngine, state: NativeState, prompts: Prompts, settings: Settings) -> bool:
    """Whether native code can do the whole search from this state."""
    limits = prompts.limits(settings)
    fresh = state.window is None and state.has_a_row_for_each(len(prompts.ids))
    if not (is_plain(settings) and fresh and starts_equally(state.length, prompts, limits)):
        return False
    return model.vectors.reach(len(prompts.ids[0]) + max(limits))


def search(model: NativeEngine, state: NativeState, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
    """The hypotheses of each prompt, the best first."""
    limits, sentences = prompts.limits(settings), len(prompts.ids)
    shape, room = (sentences, settings.n_best), max(limits)
    ids, max_tokens = (torch.tensor(x, dtype=torch.int32) for x in (prompts.ids, limits))  # (N, P), (N,)
    tokens = torch.empty(*shape, room, dtype=torch.int32)
    logprobs, scores = torch.empty(*shape, room, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    lengths = torch.empty(shape, dtype=torch.int32)
    results = CSearchResults(*(x.data_ptr() for x in (tokens, logprobs, scores, lengths)), room)
    stack, memory = model.layout.reach(ids.size(1) + room), state.memory()
    with model.threads.choose(sentences * settings.beam_width) as trial:
        how = CSearchSettings(
            ids.data_ptr(),
            max_tokens.data_ptr(),
            settings.length_penalty,
            sentences,
            ids.size(1),
            settings.beam_width,
            settings.n_best,
            ANY_TOKEN if prompts.stop is None else prompts.stop,
            trial.threads,
        )
        structures = (stack, model.vectors.structure(), memory, how, results)
        steps = model.library.clearhead_search(*(None if each is None else ctypes.byref(each) for each in structures))
        trial.steps = max(1, steps)
    if steps < 0:
        raise MemoryError(f"out of memory in a search of {sentences} texts with beam_width={settings.beam_width}")
    found = tokens[..., :steps].tolist(), logprobs[..., :steps].tolist(), scores.tolist(), lengths.tolist()
    return [_hypotheses(*sentence, prompts.stop, settings) for sentence in zip(*found, strict=True)]


def _hypotheses(
    tokens: list[list[int]],
    logprobs: list[list[float]],
    scores: list[float],
    lengths: list[int],
    stop: int | None,
    settings: Settings,
) -> list[Hypothesis]:
    """Those of one sentence, the best first, from the tokens of each, the stop token included."""
    found = []
    for ids, each, score, length in zip(tokens, logprobs, scores, lengths, strict=True):
        if length == 0:
            break
        text = ids[: length - 1] if ids[length - 1] == stop else ids[:length]
        with_scores = settings.return_logprobs or settings.beam_width > 1
        found.append(Hypothesis(text, score, tuple(each[:length])) if with_scores else Hypothesis(text))
    return found or [Hypothesis([], 0.0)]
