"""What came before attention alone: a recurrent decoder that writes token by token about what was read.

    s_0 = tanh(W c)                      the first state, predicted from the summary c of what was read
    s_t = g(y_t, s_{t-1}, c)             one context vector for the whole text, or
    s_t = g(y_t, s_{t-1}, c_t)           one for each step, by attention:

    e_ti = score(s_{t-1}, h_i),   a_t = softmax(e_t),   c_t = Σ_i a_ti h_i

Translation reads a sentence and captioning an image; the rest is the same, and is here. Of the configuration they
use `dim` (tokens, states and contexts alike), `layers`, `cell`, `score`, `hard`, `dropout` and `tied`.

    B batch, S states read, T tokens written, L layers, D width, V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig, RecurrentConfig
from clearhead.models import assemble
from clearhead.models.assemble import TokenInput
from clearhead.nn import Recurrent, State, TokenOutput, attention, pick_one, softmax
from clearhead.nn.dropout import Dropout


@dataclass(frozen=True)
class Memory:
    """What was read."""

    states: Tensor  # (B, S, D): h_1 … h_S
    summary: Tensor  # (B, D): all of it in one vector
    real: Tensor | None = None  # (B, 1, S): which states are no padding

    def reorder(self, rows: Tensor) -> Memory:
        """Row i becomes what row rows[i] was."""
        return Memory(self.states[rows], self.summary[rows], None if self.real is None else self.real[rows])


@dataclass(frozen=True)
class WritingState:
    """What is known between two steps of writing."""

    memory: Memory
    last: State  # s_{t-1}, (L, B, D)


def plain_tokens(config: ModelConfig, size: int, pad: int | None = None) -> TokenInput:
    """Token vectors without positions: a recurrent network reads in order anyway."""
    return TokenInput(config.model_copy(update={"positions": "none", "position_concat": False}), size, pad)


def recurrent(config: RecurrentConfig, inputs: int) -> Recurrent:
    """A network of the configured cell that reads vectors of size `inputs` in one direction."""
    return Recurrent(config.cell, inputs, config.dim, config.layers, dropout=config.dropout)


class FirstState(nn.Module):
    """s_0 = tanh(W c) for every layer, and for an LSTM its cell state likewise."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.parts, self.layers = 2 if config.cell == "lstm" else 1, config.layers
        self.linear = nn.Linear(config.dim, self.parts * self.layers * config.dim)

    def forward(self, summary: Tensor) -> State:
        """(B, D) -> a state of L layers, each (B, D)."""
        numbers = torch.tanh(self.linear(summary)).unflatten(-1, (self.parts, self.layers, -1))  # (B, parts, L, D)
        return State(*(part.contiguous() for part in numbers.permute(1, 2, 0, 3)))


class ContextDecoder(nn.Module):
    """s_t = g(y_t, s_{t-1}, c): the same context at every step, so all steps are one call of the network."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.network = recurrent(config, 2 * config.dim)

    def forward(self, tokens: Tensor, memory: Memory, last: State) -> tuple[Tensor, State]:
        """tokens (B, T, D) -> states (B, T, D) and the one after the last token."""
        context = memory.summary.unsqueeze(1).expand_as(tokens)  # (B, T, D)
        return self.network(torch.cat((tokens, context), dim=-1), state=last)


class AttentionDecoder(nn.Module):
    """s_t = g(y_t, s_{t-1}, c_t): before each step, the last state looks for what it needs now."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.network = recurrent(config, 2 * config.dim)
        self.score = assemble.SCORES[config.score](config.dim, 1)
        self.weigh = pick_one if config.hard else softmax

    def forward(self, tokens: Tensor, memory: Memory, last: State) -> tuple[Tensor, State]:
        """tokens (B, T, D) -> states (B, T, D) and the one after the last token."""
        states, last, _ = self.align(tokens, memory, last)
        return states, last

    def align(self, tokens: Tensor, memory: Memory, last: State) -> tuple[Tensor, State, Tensor]:
        """The same, and the weights a_ti of every step, (B, T, S)."""
        states, weights = [], []
        for token in tokens.split(1, dim=1):  # (B, 1, D)
            context, looked = self.look(memory, last)
            state, last = self.network(torch.cat((token, context), dim=-1), state=last)
            states.append(state)
            weights.append(looked)
        return torch.cat(states, dim=1), last, torch.cat(weights, dim=1)

    def look(self, memory: Memory, last: State) -> tuple[Tensor, Tensor]:
        """s_{t-1} -> the context c_t (B, 1, D) and its weights a_t (B, 1, S)."""
        query = last.top.unsqueeze(1)  # (B, 1, D)
        return attention(query, memory.states, memory.states, memory.real, self.score, weigh=self.weigh)


class RnnWriter(nn.Module, ABC):
    """Reads something and writes a text about it; what `read` takes is all that differs from task to task."""

    def __init__(self, config: RecurrentConfig, size: int, decoder: ContextDecoder | AttentionDecoder, pad: int = 0):
        super().__init__()
        self.pad = pad
        self.target = plain_tokens(config, size, pad)
        self.first = FirstState(config)
        self.decoder = decoder
        self.dropout = Dropout(config.dropout)
        self.output = TokenOutput(config.dim, size, bias=False, tied=self.target.tokens.table if config.tied else None)

    @abstractmethod
    def read(self, source: Tensor) -> Memory:
        """What the decoder may know of the source."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """A source and the target (B, T) -> logits (B, T, V); each sees the tokens before it (teacher forcing)."""
        logits, _ = self.step(target, self.start(source))
        return logits

    def start(self, source: Tensor) -> WritingState:
        """Read the source, ready to write."""
        memory = self.read(source)
        return WritingState(memory, self.first(memory.summary))

    def step(self, ids: Tensor, state: WritingState) -> tuple[Tensor, WritingState]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        states, last = self.decoder(self.target(ids), state.memory, state.last)
        return self.output(self.dropout(states)), WritingState(state.memory, last)

    def reorder(self, state: WritingState, rows: Tensor) -> WritingState:
        """Row i becomes what row rows[i] was."""
        return WritingState(state.memory.reorder(rows), state.last.reorder(rows))
