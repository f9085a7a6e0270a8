"""The choice of the next token: the likeliest, or one drawn at random.

Each row draws with numbers of its own, that follow from the seed and the row's number alone: a text is the same
whatever else is in the batch.

    B rows, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import torch
from torch import Tensor

from clearhead.decode.rules import chances_of
from clearhead.decode.settings import Settings

Choose = Callable[[Tensor, list[int | None]], Tensor]  # logits (B, V), whose they are; none has no choice -> (B,)


def chooser(settings: Settings, numbers: Sequence[int]) -> Choose:
    """The likeliest token, or with a temperature one that is drawn with the numbers of its row."""
    if settings.temperature == 0:
        return lambda logits, _: logits.max(-1).indices  # on a CPU faster than argmax
    generators = [generator(settings.seed, number) for number in numbers]
    chances = chances_of(settings)

    def choose(logits: Tensor, rows: list[int | None]) -> Tensor:
        shaped = logits.double()
        for chance in chances:
            shaped = chance(shaped)
        return draw(shaped, [0.0 if row is None else generators[row].random() for row in rows])

    return choose


def generator(seed: int | None, number: int) -> Random:
    """Where a row's random numbers come from."""
    return Random() if seed is None else Random(f"{seed}, {number}")


def draw(logits: Tensor, shares: list[float]) -> Tensor:
    """(B, V), and of each row a share of the probability: the first token at which all up to it have more."""
    sums = logits.double().softmax(-1).cumsum(-1)
    share = torch.tensor(shares, dtype=sums.dtype, device=sums.device).unsqueeze(1) * sums[:, -1:]  # (B, 1)
    return torch.searchsorted(sums, share, right=True).squeeze(1)
