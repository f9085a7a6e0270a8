"""Whole texts by native code: greedy writing and plain beam search, with no Python between two tokens.

What decode/ defines beyond that (rules about tokens, chance, groups, coverage, prompts of unequal length) stays there.

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
from clearhead.engines.layout import COrder, CTexts

if TYPE_CHECKING:
    from clearhead.engines.compiled import Compiled, State

PLAIN = Settings()
KNOWN = ("max_tokens", "beam_width", "n_best", "length_penalty", "return_logprobs", "seed")  # all that may be set


def is_plain(settings: Settings) -> bool:
    """Whether native code knows all that is asked for; a seed means nothing where nothing is drawn."""
    others = {field.name for field in fields(Settings)}.difference(KNOWN)
    return all(getattr(settings, name) == getattr(PLAIN, name) for name in others)


def may_be_searched(read: int, prompts: Prompts, longest: Sequence[int]) -> bool:
    """Whether nothing was read, all prompts are as long, and something may be written about each."""
    lengths = {len(prompt) for prompt in prompts.ids}
    return read == 0 and len(lengths) == 1 and min(lengths) > 0 and min(longest) > 0


def can_search(model: Compiled, state: State, prompts: Prompts, settings: Settings) -> bool:
    """Whether native code can do the whole search."""
    longest = prompts.limits(settings)
    fresh = state.window is None and state.has_a_row_for_each(len(prompts.ids))
    if not (is_plain(settings) and fresh and may_be_searched(state.length, prompts, longest)):
        return False
    return model.vectors.reach(len(prompts.ids[0]) + max(longest))


def search(model: Compiled, state: State, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
    """What `generate` returns; the structures that native code reads and fills."""
    longest = prompts.limits(settings)
    sentences, shape = len(prompts.ids), (len(prompts.ids), settings.n_best)
    room = max(longest)
    ids, limits = (torch.tensor(x, dtype=torch.int32) for x in (prompts.ids, longest))  # (N, P), (N,)
    tokens = torch.empty(*shape, room, dtype=torch.int32)
    own, scores = torch.empty(*shape, room, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    written = torch.empty(shape, dtype=torch.int32)
    texts = CTexts(*(x.data_ptr() for x in (tokens, own, scores, written)), room)
    stack, memory = model.layout.reach(ids.size(1) + room), state.memory()
    with model.threads.chosen(sentences * settings.beam_width) as trial:
        order = COrder(
            ids.data_ptr(),
            limits.data_ptr(),
            settings.length_penalty,
            sentences,
            ids.size(1),
            settings.beam_width,
            settings.n_best,
            ANY_TOKEN if prompts.stop is None else prompts.stop,
            trial.threads,
        )
        structures = (stack, model.vectors.structure(), memory, order, texts)
        steps = model.library.clearhead_search(*(None if each is None else ctypes.byref(each) for each in structures))
        trial.steps = max(1, steps)
    if steps < 0:
        raise MemoryError(f"no memory left for a search of {sentences} texts with {settings.beam_width} beams")
    kept = tokens[..., :steps].tolist(), own[..., :steps].tolist(), scores.tolist(), written.tolist()
    return [_hypotheses(*sentence, prompts.stop, settings) for sentence in zip(*kept, strict=True)]


def _hypotheses(
    tokens: list[list[int]],
    own: list[list[float]],
    scores: list[float],
    written: list[int],
    stop: int | None,
    settings: Settings,
) -> list[Hypothesis]:
    """Those of one sentence, the best first, from the tokens written for each, the stop included."""
    found = []
    for ids, each, score, length in zip(tokens, own, scores, written, strict=True):
        if length == 0:
            break
        text = ids[: length - 1] if ids[length - 1] == stop else ids[:length]
        asked = settings.return_logprobs or settings.beam_width > 1
        found.append(Hypothesis(text, score, tuple(each[:length])) if asked else Hypothesis(text))
    return found or [Hypothesis([], 0.0)]
