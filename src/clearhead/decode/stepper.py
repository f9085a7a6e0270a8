"""What a way of writing needs to know of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.decode.hypothesis import Hypothesis
    from clearhead.decode.plan import Prompts
    from clearhead.decode.settings import Settings

CHUNK = 512  # tokens of a prompt that are read at once
SPAN = 64  # tokens of which one maximum is taken


class Stepper(Protocol):
    """A model that writes one token after the other; what it remembers is its own affair."""

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each, and the new state."""
        ...

    def reorder(self, state: Any, rows: Tensor) -> Any:
        """The state in which row i is what row rows[i] was."""
        ...


@runtime_checkable
class Attending(Stepper, Protocol):
    """A model that also says where in its source it looked."""

    def step_with_attention(self, ids: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Like `step`, and between the two, (B, T, S): the weight of each part of the source; of padding it is 1."""
        ...


class Ranking(Stepper, Protocol):
    """A model that can find the best tokens faster than torch."""

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """What `best` below gives."""
        ...


@runtime_checkable
class Searching(Stepper, Protocol):
    """A model that can write whole texts by itself, the same ones that `write` would."""

    def search(self, state: Any, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]] | None:
        """What `write` gives, or none where the settings ask for something that it does not know."""
        ...


def best(model: Stepper, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, V) -> the largest logits (B, N), falling, their tokens (B, N), and log Σ exp of all logits (B,)."""
    own = getattr(model, "best", None)  # to ask whether it is a `Ranking` takes longer than a small model's choice
    found: tuple[Tensor, Tensor, Tensor] = rank(logits, count) if own is None else own(logits, count)
    return found


def rank(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `best` gives, for any model."""
    value, token = largest(logits, count)
    highest = value[:, :1]
    return value, token, (logits - highest).exp_().sum(-1).log_() + highest.squeeze(1)


def largest(logits: Tensor, count: int, span: int = SPAN) -> tuple[Tensor, Tensor]:
    """(B, V) -> what topk gives. Of many logits, first the spans that hold the largest: a maximum is cheap."""
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


def read(model: Stepper, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Tokens (B, T) -> the logits (B, V) of what follows the last; a long prompt is read in parts, for less memory."""
    for part in torch.split(ids, CHUNK, dim=1):
        logits, state = model.step(part, state)
    return last_logits(logits), state


def read_and_look(model: Stepper, ids: Tensor, state: Any, *, look: bool) -> tuple[Tensor, Tensor, Any]:
    """The same, and between the two how much was seen of the source, (B, S); without a look S is 0."""
    if not look:
        logits, state = read(model, ids, state)
        return logits, logits.new_zeros(len(ids), 0), state
    if not isinstance(model, Attending):
        raise ConfigError("coverage_penalty needs a model that says where in its source it looks; leave it at 0")
    logits, weights, state = model.step_with_attention(ids, state)
    return last_logits(logits), weights.sum(1), state


def last_logits(logits: Tensor) -> Tensor:
    """(B, T, V) -> what follows the last token, (B, V), at least in float32."""
    last = logits[:, -1]
    return last if last.dtype == torch.float64 else last.float()


def move(model: Stepper, state: Any, rows: list[int], count: int, device: torch.device | str = "cpu") -> Any:
    """Reorder the state of `count` rows, which copies it, unless every row stays where it is, or none is left."""
    if not rows or rows == list(range(count)):
        return state
    return model.reorder(state, torch.tensor(rows, device=device))
