"""A network of the user's own class in the place of one of ours: it needs the `forward` of its task.

lm, masked_lm, tag     ids (B, T) -> logits (B, T, V)           classify    ids (B, T) -> logits (B, C)
translate              source (B, S), target (B, T) -> logits (B, T, V)
caption                images (B, C, H, W), target (B, T) -> logits (B, T, V)
vision                 images (B, C, H, W) -> logits (B, C)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class TokensRead:
    """The state of a network without a cache: all that it has to read again."""

    source: tuple[Tensor, ...]
    ids: Tensor | None = None  # (B, T)


class StepsWithoutCache:
    """`start`, `step` and `reorder` by `forward` alone: every step reads all tokens again."""

    def start(self, *source: Tensor) -> TokensRead:
        """The state before the first token."""
        return TokensRead(source)

    def step(self: Any, ids: Tensor, state: TokensRead) -> tuple[Tensor, TokensRead]:
        """The next tokens (B, T) -> logits (B, T, V) of the token after each."""
        read = ids if state.ids is None else torch.cat((state.ids, ids), dim=1)
        logits: Tensor = self(*state.source, read)
        return logits[:, -ids.size(1) :], TokensRead(state.source, read)

    def reorder(self, state: TokensRead, rows: Tensor) -> TokensRead:
        ids = None if state.ids is None else state.ids[rows]
        return TokensRead(tuple(each[rows] for each in state.source), ids)


def with_steps(network: nn.Module) -> nn.Module:
    """The same network, able to generate: one without `step` gets it, by a class between its own and itself.

    Its weights keep their names, so that they also fit the network outside of Clearhead.
    """
    kind = type(network)
    if not hasattr(kind, "step"):
        network.__class__ = type(kind.__name__, (StepsWithoutCache, kind), {"__module__": kind.__module__})
    return network
