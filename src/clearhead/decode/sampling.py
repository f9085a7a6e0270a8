"""Sampling: draw the next token at random, from logits that a chain of pure functions has shaped.

B rows, V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from clearhead.decode.stepper import Stepper


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Below 1 the likely become likelier, above 1 all become more alike."""
    return logits / temperature


def only_top_k(logits: Tensor, k: int | None) -> Tensor:
    """The k likeliest tokens; the rest are impossible."""
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


@torch.inference_mode()
def sample(
    model: Stepper,
    state: Any,
    prompt: Tensor,
    *,
    longest: int,
    stop: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int | None = None,
) -> Iterator[int]:
    """Read the prompt (1, T), then give one token after the other; temperature 0 takes the likeliest."""
    generator = torch.Generator(prompt.device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    ids = prompt
    for _ in range(longest):
        logits, state = model.step(ids, state)
        ids = _draw(logits[:, -1].float(), temperature, top_k, top_p, generator)
        token = int(ids)
        if token == stop:
            return
        yield token


def _draw(logits: Tensor, temperature: float, top_k: int | None, top_p: float, generator: torch.Generator) -> Tensor:
    """(B, V) -> (B, 1)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    shaped = only_top_p(only_top_k(with_temperature(logits, temperature), top_k), top_p)
    return torch.multinomial(shaped.softmax(-1), 1, generator=generator)
