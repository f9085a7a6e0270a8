"""The model as the token loop sees it.

S source positions, B rows, T tokens, V vocabulary
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from clearhead.errors import ConfigError

PART = 512  # prompt tokens that are read in one step
PART_OF_BATCH = 1024  # prompt tokens of all rows that are read in one step: their logits (B, T, V) take memory
SPAN = 64  # logits of which one maximum is taken


class Stepper(Protocol):
    """A model that reads tokens and predicts the next one; its state is opaque to the search.

    It may have more methods, of which the search uses those that are there:

        step_with_attention(ids, state)         like `step`, with the attention to the source (B, T, S) in the middle,
                                                in which padding has the weight 1
        step_last(ids, state)                   like `step`, with the logits (B, 1, V) after the last token only
        step_seeing(ids, state, heads, last)    like `step` or `step_last`, with a tensor (B, T, keys) of each head in
                                                the middle
        see(ids, state, groups)                 what `step_seeing` sees, (H, B, T, keys) of each group of heads, where
                                                nothing else is wanted
        seen_keys(state)                        how many of these keys each row has
        best(logits, count)                     what `rank` returns, faster
        sampler([settings, …])                  what `logits.RowSampler` is, faster
        can_search(state, prompts, settings)    whether `search` supports these settings from this state
        search(state, prompts, settings)        what `generate` returns, without Python between two tokens
        merge([state, …])                       one state with the rows of all, whose lengths may differ; or None
        rewind(state, tokens)                   right after a step: the state before the last tokens of all rows
        max_length                              tokens that a row can read, where that is limited
        prefix(state, row, length)              a new state of one row that has read the first tokens of a row; or None
    """

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each, and the new state."""
        ...

    def reorder(self, state: Any, rows: Tensor) -> Any:
        """The state in which row i is what row rows[i] was; the old state must not be used any more."""
        ...


def best(model: Stepper, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `rank` returns, by the model's own method if it has one."""
    own = getattr(model, "best", None)
    found: tuple[Tensor, Tensor, Tensor] = rank(logits, count) if own is None else own(logits, count)
    return found


def rank(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (B, V) -> the largest (B, count), descending, their tokens (B, count), and log Σ exp of each row (B,)."""
    value, token = largest(logits, count)
    highest = value[:, :1]
    return value, token, (logits - highest).exp_().sum(-1).log_() + highest.squeeze(1)


def largest(logits: Tensor, count: int, span: int = SPAN) -> tuple[Tensor, Tensor]:
    """What topk returns for (B, V). Of many logits, first the spans with the largest maxima: a maximum is cheap."""
    rows, size = logits.size(0), logits.size(1)
    if rows == 1 or size < 8 * count * span or not logits.is_cpu:
        return logits.topk(count, dim=-1)
    each = size // span
    whole, wide = each * span, count * span
    spans = logits[:, :whole].reshape(rows * each, span)
    chosen = spans.amax(-1).view(rows, each).topk(count, dim=-1, sorted=False)[1]  # (B, N)
    first = torch.arange(0, rows * each, each).unsqueeze(1)  # span of each row
    inside = spans.index_select(0, (first + chosen).flatten()).view(rows, wide)
    value, place = torch.cat((inside, logits[:, whole:]), dim=1).topk(count, dim=-1)  # (B, N)
    in_span = chosen.gather(1, (place // span).clamp(max=count - 1)) * span + place % span
    return value, torch.where(place < wide, in_span, place + (whole - wide))


def part_length(rows: int) -> int:
    """How many prompt tokens of each row are read in one step."""
    return max(1, min(PART, PART_OF_BATCH // rows))


def step_with_attention(model: Stepper, ids: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
    """Tokens (B, T) -> logits (B, T, V), the attention to the source summed over the tokens (B, S), the new state."""
    step = getattr(model, "step_with_attention", None)
    if step is None:
        raise ConfigError("coverage_penalty needs a model that returns its attention to a source; leave it at 0")
    logits, weights, state = step(ids, state)
    return logits, weights.sum(1), state


def last_logits(logits: Tensor) -> Tensor:
    """(B, T, V) -> the logits after the last token (B, V), at least in float32."""
    last = logits[:, -1]
    return last if last.dtype == torch.float64 else last.float()


def select_rows(model: Stepper, state: Any, rows: list[int], count: int, device: torch.device | str = "cpu") -> Any:
    """Reorder the state of `count` rows, which copies it, unless every row stays where it is or none is left."""
    if not rows or rows == list(range(count)):
        return state
    return model.reorder(state, torch.tensor(rows, device=device))
