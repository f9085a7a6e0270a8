"""A position scheme in one file: KERPLE adds -p log(1 + r |i - j|) to the score, p and r learned for each head.

    CLEARHEAD_PLUGINS=position_plugin.py clearhead train translate --data builtin model.positions=kerple

(Chi et al., 2022.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.nn import POSITIONS, PositionSizes, RelativePositions


@POSITIONS.register("kerple")
class Kerple(RelativePositions):
    """The score falls with the logarithm of the distance."""

    def __init__(self, heads: int):
        super().__init__()
        self.p = nn.Parameter(torch.ones(heads, 1, 1))
        self.r = nn.Parameter(torch.ones(heads, 1, 1))

    @classmethod
    def in_heads(cls, sizes: PositionSizes) -> Kerple:
        return cls(sizes.heads)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (T,), (S,) -> (H, T, S)."""
        distance = (queries.unsqueeze(-1) - keys).abs()
        return -self.p.abs() * torch.log1p(self.r.abs() * distance)
