"""Recurrent networks: they read a sequence one token after the other.

    RNN    h_t = tanh(W_hx x_t + W_hh h_{t-1})
    GRU    gates decide how much of h_{t-1} is kept and how much is new
    LSTM   a second state c_t is only added to, so that gradients survive (as in a residual connection)

    B batch, T tokens, L layers, D input size, H hidden size

All three are torch's, wrapped so that padding and state are handled once. Another cell of torch's interface
(`nn.RNNBase`), registered in `CELLS`, is a value of `model.cell`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearhead.errors import ShapeError
from clearhead.registry import Registry

CELLS: Registry[Callable[..., nn.RNNBase]] = Registry("cell")
CELLS.register("rnn")(nn.RNN)
CELLS.register("gru")(nn.GRU)
CELLS.register("lstm")(nn.LSTM)


@dataclass(frozen=True)
class State:
    """The state between two tokens; only the LSTM has a cell state."""

    hidden: Tensor  # (L, B, H); twice the layers if bidirectional
    cell: Tensor | None = None  # (L, B, H)

    def reorder(self, rows: Tensor) -> State:
        return State(self.hidden[:, rows], None if self.cell is None else self.cell[:, rows])

    @property
    def top(self) -> Tensor:
        """(B, H): the hidden state of the last layer."""
        return self.hidden[-1]


class Recurrent(nn.Module):
    """An RNN, GRU or LSTM that stops each row at its last real token."""

    def __init__(
        self, cell: str, dim: int, hidden: int, layers: int = 1, *, both_ways: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.network = CELLS[cell](dim, hidden, layers, batch_first=True, bidirectional=both_ways, dropout=between)
        self.hidden = hidden * (2 if both_ways else 1)  # size of one output
        self.has_cell_state = isinstance(self.network, nn.LSTM)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: State | None = None) -> tuple[Tensor, State]:
        """x (B, T, D), lengths (B,) -> states (B, T, H), zero where padded, and the state after the last token."""
        if lengths is None:
            states, last = self.network(x, _unwrap(state))
            return states, _wrap(last)
        if int(lengths.min()) < 1:
            raise ShapeError(f"row {int(lengths.argmin())} has no tokens; a recurrent network needs at least one")
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.network(packed, _unwrap(state))
        return pad_packed_sequence(states, batch_first=True, total_length=x.size(1))[0], _wrap(last)


def sum_of_states(states: Tensor) -> Tensor:
    """(B, T, H) -> (B, H): the sentence as the sum of its states, which are zero where padded."""
    return states.sum(1)


def _wrap(last: Tensor | tuple[Tensor, Tensor]) -> State:
    return State(last) if isinstance(last, torch.Tensor) else State(*last)


def _unwrap(state: State | None) -> Tensor | tuple[Tensor, Tensor] | None:
    if state is None or state.cell is None:
        return None if state is None else state.hidden
    return state.hidden, state.cell
