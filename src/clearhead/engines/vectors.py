"""From tokens to vectors, as native code does it: a row of a table, scaled, and the vector of its place added."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.engines.layout import CInput
from clearhead.models.assemble import TokenInput


class Vectors:
    """The input of a stack; vectors of places are computed once."""

    def __init__(self, embed: TokenInput, *, concatenated: bool):
        self.embed, self.concatenated = embed, concatenated
        self.places = torch.empty(1, 0, 0)  # (1, positions, D)
        self._kept: list[Tensor] = []  # shorter ones: another thread may still compute with them

    def reach(self, end: int) -> bool:
        """Whether places are added, and there are so many."""
        if self.concatenated or not self.embed.positions.is_added:
            return False
        if end > self.places.size(1):
            room = min(2 * end, self.embed.positions.max_length or 2 * end)
            if end > room:
                return False
            with torch.inference_mode():
                nothing = self.embed.tokens.table.weight.new_zeros(1, room, self.embed.tokens.dim)
                self._kept.append(self.places)
                self.places = self.embed.positions(nothing)
        return True

    def of(self, ids: Tensor, start: int) -> Tensor:
        """(B, T) tokens from position `start` on -> (B, T, D), as the model embeds."""
        end = start + ids.size(1)
        if not self.reach(end):
            whole: Tensor = self.embed(ids, start=start)
            return whole.contiguous()
        tokens = self.embed.tokens
        return torch.embedding(tokens.table.weight, ids).mul_(tokens.scale) + self.places[:, start:end]

    def structure(self) -> CInput:
        """The same for native code, as far as it reaches."""
        added = self.places.data_ptr() if self.embed.positions.has_vectors else None
        return CInput(self.embed.tokens.table.weight.data_ptr(), added, self.embed.tokens.scale)
