"""Dropout: in training, each number is set to zero with probability p, and the others are scaled to keep the mean.

    y = x · keep / (1 - p)          keep ~ Bernoulli(1 - p), one draw for each number

On a CPU torch draws one 64-bit random word for each number, which takes longer than the layer before it.
Sixteen bits are enough: here four numbers share one word, and p is rounded to a multiple of 1/65536.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEVELS = 1 << 16  # values of sixteen bits
LOWEST = -(1 << 63)  # of a 64-bit word


class Dropout(nn.Dropout):
    """torch's dropout with a quarter of the random words on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return super().forward(x)
        dropped = round(self.p * LEVELS)
        if dropped == LEVELS:
            return x * 0.0
        return x * (_random_int16(x) >= dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - dropped))


def _random_int16(like: Tensor) -> Tensor:
    """Random numbers from -32768 to 32767 in the shape of `like`."""
    count = like.numel()
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(LOWEST, None)
    return words.view(torch.int16)[:count].view(like.shape)
