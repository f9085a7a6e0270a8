"""Token vectors as native code computes them: a row of the table, scaled, plus the vector of its position."""

from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor

from clearhead.engines.native.layout import CInput
from clearhead.models.assemble import TokenInput


class TokenVectors:
    """The input of a stack; position vectors are computed once."""

    def __init__(self, embed: TokenInput, *, concatenated: bool):
        self.embed, self.concatenated = embed, concatenated
        self.positions = torch.empty(1, 0, 0)  # (1, positions, D)
        self._older: list[Tensor] = []  # shorter tables: another thread may still compute with them
        self._lock = Lock()

    def reach(self, end: int) -> bool:
        """Make the table at least this long; False where position vectors are not added, or end before."""
        if self.concatenated or not self.embed.positions.is_added:
            return False
        if end > self.positions.size(1):
            room = min(2 * end, self.embed.positions.max_length or 2 * end)
            if end > room:
                return False
            with self._lock:
                self._grow(room)
        return True

    @torch.inference_mode()
    def _grow(self, room: int) -> None:
        """Compute a longer table, unless another thread has done so: a table never becomes shorter."""
        if room > self.positions.size(1):
            zeros = self.embed.tokens.table.weight.new_zeros(1, room, self.embed.tokens.dim)
            self._older.append(self.positions)
            self.positions = self.embed.positions(zeros)

    def embed_tokens(self, ids: Tensor, start: int) -> Tensor:
        """Tokens (B, T) from position `start` on -> (B, T, D), as the model embeds them."""
        end = start + ids.size(1)
        if not self.reach(end):
            whole: Tensor = self.embed(ids, start=start)
            return whole.contiguous()
        return self._table_rows(ids) + self.positions[:, start:end]

    def embed_at(self, ids: Tensor, starts: Tensor) -> Tensor:
        """The same for rows that start at unequal positions (B,)."""
        if not self.reach(int(starts.max()) + ids.size(1)):
            rows = zip(ids, starts.tolist(), strict=True)
            return torch.cat([self.embed_tokens(row.unsqueeze(0), start) for row, start in rows])
        places = starts.unsqueeze(1) + torch.arange(ids.size(1))  # (B, T)
        return self._table_rows(ids) + self.positions[0][places]

    def _table_rows(self, ids: Tensor) -> Tensor:
        tokens = self.embed.tokens
        return torch.embedding(tokens.table.weight, ids).mul_(tokens.scale)

    def structure(self) -> CInput:
        """The same for native code, as far as the table reaches."""
        added = self.positions.data_ptr() if self.embed.positions.has_vectors else None
        return CInput(self.embed.tokens.table.weight.data_ptr(), added, self.embed.tokens.scale)
