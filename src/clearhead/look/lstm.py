"""The cell state c_t of an LSTM after every token, which torch computes but does not return.

    i, f, g, o = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh
    c_t = σ(f) c_{t-1} + σ(i) tanh(g)                 what is kept, and what is new
    h_t = σ(o) tanh(c_t)                              what is exposed

The hidden states are known, so the gates of all tokens are one matrix product; only the sum goes token by token. A
counter, such as the position in a line, is kept in c_t and exposed in h_t only where it is needed.

    B batch, T tokens, D input size, H hidden size
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.errors import ProbeError
from clearhead.nn import Recurrent, State


def cell_states(layer: Recurrent, x: Tensor, lengths: Tensor | None = None, before: State | None = None) -> Tensor:
    """One layer, x (B, T, D), lengths (B,) -> c (B, T, H), zero where padded; (B, T, 2 H) if bidirectional."""
    if layer.network.mode != "LSTM":
        raise ProbeError(f"a {layer.network.mode} has no cell state beside its hidden state; only an LSTM has")
    states, _ = layer(x, lengths, before)
    real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if lengths is not None:
        real = torch.arange(x.size(1), device=x.device) < lengths.to(x.device).unsqueeze(-1)  # (B, T)
    size = layer.network.hidden_size
    forward = _run(layer, "", x, states[..., :size], real, _start(before, 0))
    if not layer.network.bidirectional:
        return forward
    x, states, real = x.flip(1), states[..., size:].flip(1), real.flip(1)
    return torch.cat((forward, _run(layer, "_reverse", x, states, real, _start(before, 1)).flip(1)), dim=-1)


def _start(before: State | None, direction: int) -> tuple[Tensor, Tensor] | None:
    """h_0 and c_0 (B, H) of one direction."""
    return None if before is None or before.cell is None else (before.hidden[direction], before.cell[direction])


def _run(
    layer: Recurrent, suffix: str, x: Tensor, states: Tensor, real: Tensor, start: tuple[Tensor, Tensor] | None
) -> Tensor:
    """c (B, T, H) of one direction in reading order; padding before the first token leaves it zero."""
    empty = torch.zeros_like(states[:, 0])  # (B, H)
    hidden, cell = start or (empty, empty)
    earlier = torch.cat((hidden.unsqueeze(1), states[:, :-1]), dim=1)  # h_{t-1}, (B, T, H)
    weight = {
        name: getattr(layer.network, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    gates = F.linear(x, weight["weight_ih"], weight["bias_ih"]) + F.linear(
        earlier, weight["weight_hh"], weight["bias_hh"]
    )
    new, keep, content, _ = gates.chunk(4, dim=-1)  # each (B, T, H)
    kept, added = keep.sigmoid(), new.sigmoid() * content.tanh()
    cells = []
    for token in range(x.size(1)):
        cell = (kept[:, token] * cell + added[:, token]) * real[:, token, None]
        cells.append(cell)
    return torch.stack(cells, dim=1)
