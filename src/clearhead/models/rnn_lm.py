"""A language model that reads one token after the other and keeps all it knows in one state.

h_t = f(x_t, h_{t-1}),   p(next token) = softmax(W h_t)

B batch, T tokens, L layers, D width, V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.config import RecurrentConfig
from clearhead.models.rnn import plain_tokens, recurrent
from clearhead.nn import State, TokenOutput
from clearhead.nn.dropout import Dropout


@dataclass(frozen=True)
class RnnTextState:
    """What is known between two tokens of a text."""

    last: State | None = None  # h_{t-1}, (L, B, D); none before the first token


class RnnLanguageModel(nn.Module):
    """p(next token | a state that has read all before it)."""

    def __init__(self, config: RecurrentConfig, size: int, pad: int = 0):
        super().__init__()
        self.config, self.pad = config, pad
        self.tokens = plain_tokens(config, size)
        self.network = recurrent(config, config.dim)
        self.dropout = Dropout(config.dropout)
        self.output = TokenOutput(config.dim, size, bias=False, tied=self.tokens.tokens.table if config.tied else None)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> logits (B, T, V)."""
        return self.output(self.dropout(self.read(ids)))

    def read(self, ids: Tensor) -> Tensor:
        """(B, T) -> the state of the last layer after each token, (B, T, D)."""
        states, _ = self.network(self.tokens(ids))
        return states

    def start(self) -> RnnTextState:
        """Nothing read yet."""
        return RnnTextState()

    def step(self, ids: Tensor, state: RnnTextState) -> tuple[Tensor, RnnTextState]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        states, last = self.network(self.tokens(ids), state=state.last)
        return self.output(self.dropout(states)), RnnTextState(last)

    def reorder(self, state: RnnTextState, rows: Tensor) -> RnnTextState:
        """Row i becomes what row rows[i] was."""
        return RnnTextState(None if state.last is None else state.last.reorder(rows))
