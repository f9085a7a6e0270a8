"""An attention score in one file: the nearer a key is to the query, the higher its score.

CLEARHEAD_PLUGINS=score_plugin.py clearhead train translate --data builtin model.score=euclidean
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.nn import SCORES


@SCORES.register("euclidean")
class Euclidean(nn.Module):
    """-τ |q - k|² with a learned τ for each head."""

    equation = "s_j = -τ |q - k_j|²"

    def __init__(self, key_dim: int, heads: int):
        super().__init__()
        self.sharpness = nn.Parameter(torch.full((heads, 1, 1), key_dim**-0.5))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """q (…, T, D), k (…, S, D) -> (…, T, S)."""
        squares = (q**2).sum(-1, keepdim=True) + (k**2).sum(-1).unsqueeze(-2)  # |q|² + |k|²
        return -self.sharpness * (squares - 2 * q @ k.transpose(-2, -1))
