"""Recurrent networks: a language model, a translator and a captioner from before attention alone.

Language model: all it knows of the text is one state.

    h_t = f(x_t, h_{t-1}),   p(next token) = softmax(W h_t)

Translation and captioning: an encoder reads the source into states h_1 … h_S, and a decoder writes.

    s_0 = tanh(W c)                      the first state, predicted from the summary c of the source
    s_t = g(y_t, s_{t-1}, c)             one context vector for the whole source, or
    s_t = g(y_t, s_{t-1}, c_t)           one for each step, by attention:

    e_ti = score(s_{t-1}, h_i),   a_t = softmax(e_t),   c_t = Σ_i a_ti h_i

    context=last        c = h_S, the last state (Georgia Tech)
    context=sum         c = Σ h_i, the sum of the states (Brown)
    context=attention   c_t = Σ a_ti h_i, and s_0 from the final state (both)
    captioning          c = W · mean of the patch vectors ("Show and Tell")

As in Bahdanau's paper, an encoder that is attended to is bidirectional: each direction has half of the width, so that
h_i is as wide as s_{t-1} and any score can compare the two. The others read from left to right, as in the lectures.
Of the configuration they use `dim` (tokens, states and contexts), `layers`, `cell`, `score`, `hard`, `dropout`, `tied`.

    B batch, S source states, T target tokens, L layers, C channels, N patches, D width, V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.models.build import Model, TokenInput
from clearhead.models.config import AlignedConfig, ContextName, ModelConfig, RecurrentConfig, RecurrentPatchConfig
from clearhead.models.vision import PatchEncoder
from clearhead.nn import (
    SCORES,
    Dropout,
    Recurrent,
    State,
    TokenOutput,
    attention,
    padding_mask,
    pick_one,
    softmax,
    sum_of_states,
)


def _token_input(config: ModelConfig, size: int, pad: int | None = None) -> TokenInput:
    """Token vectors without positions: a recurrent network reads in order anyway."""
    return TokenInput(config.model_copy(update={"positions": "none", "position_concat": False}), size, pad)


def _recurrent(config: RecurrentConfig, inputs: int) -> Recurrent:
    """A network that reads vectors of size `inputs` from left to right."""
    return Recurrent(config.cell, inputs, config.dim, config.layers, dropout=config.dropout)


def _bidirectional(config: AlignedConfig) -> Recurrent:
    """A network whose state at a token depends on the tokens before and after it."""
    if config.dim % 2:
        raise ConfigError(f"each direction of a bidirectional rnn has half of the width, and dim={config.dim} is odd")
    half = config.dim // 2
    return Recurrent(config.cell, config.dim, half, config.layers, both_ways=True, dropout=config.dropout)


# --- language model ---


class RnnLanguageModel(Model):
    """p(next token | the state after all before it)."""

    is_causal_lm = True

    def __init__(self, config: RecurrentConfig, size: int, pad: int = 0):
        super().__init__()
        self.config, self.pad = config, pad
        self.tokens = _token_input(config, size)
        self.network = _recurrent(config, config.dim)
        self.dropout = Dropout(config.dropout)
        self.output = TokenOutput(config.dim, size, bias=False, tied=self.tokens.tokens.table if config.tied else None)

    def stacks(self) -> dict[str, nn.Module]:
        return {"decoder": self.network}

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> logits (B, T, V)."""
        return self.output(self.dropout(self.read(ids)))

    def read(self, ids: Tensor) -> Tensor:
        """(B, T) -> the state of the last layer after each token, (B, T, D)."""
        states, _ = self.network(self.tokens(ids))
        return states

    def start(self) -> State | None:
        """The state before the first token: none."""
        return None

    def step(self, ids: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The next tokens (B, T) -> logits (B, T, V) of the token after each."""
        states, last = self.network(self.tokens(ids), state=state)
        return self.output(self.dropout(states)), last

    def reorder(self, state: State | None, rows: Tensor) -> State | None:
        return None if state is None else state.reorder(rows)

    def merge(self, states: Sequence[State]) -> State:
        """One state with the rows of all."""
        cells = [state.cell for state in states if state.cell is not None]
        hidden = torch.cat([state.hidden for state in states], dim=1)  # (L, B, D)
        return State(hidden, torch.cat(cells, dim=1) if cells else None)


# --- encoder and decoder ---


@dataclass(frozen=True)
class Memory:
    """The encoded source."""

    states: Tensor  # (B, S, D): h_1 … h_S
    summary: Tensor  # (B, D): c
    real: Tensor | None = None  # (B, 1, S): which states are no padding

    def reorder(self, rows: Tensor) -> Memory:
        return Memory(self.states[rows], self.summary[rows], None if self.real is None else self.real[rows])


@dataclass(frozen=True)
class DecoderState:
    """The state between two steps of generation."""

    memory: Memory
    last: State  # s_{t-1}, (L, B, D)


class FirstState(nn.Module):
    """s_0 = tanh(W c) for every layer; an LSTM's cell state likewise."""

    def __init__(self, dim: int, layers: int, *, has_cell_state: bool):
        super().__init__()
        self.parts, self.layers = 2 if has_cell_state else 1, layers
        self.linear = nn.Linear(dim, self.parts * layers * dim)

    def forward(self, summary: Tensor) -> State:
        """(B, D) -> a state of L layers, each (B, D)."""
        numbers = torch.tanh(self.linear(summary)).unflatten(-1, (self.parts, self.layers, -1))  # (B, parts, L, D)
        return State(*(part.contiguous() for part in numbers.permute(1, 2, 0, 3)))


class ContextDecoder(nn.Module):
    """s_t = g(y_t, s_{t-1}, c): the context is the same at every step, so all steps are one call of the network."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.network = _recurrent(config, 2 * config.dim)

    def forward(self, tokens: Tensor, memory: Memory, last: State) -> tuple[Tensor, State]:
        context = memory.summary.unsqueeze(1).expand_as(tokens)  # (B, T, D)
        return self.network(torch.cat((tokens, context), dim=-1), state=last)


class AttentionDecoder(nn.Module):
    """s_t = g(y_t, s_{t-1}, c_t): before each step, the last state attends to the memory."""

    def __init__(self, config: AlignedConfig):
        super().__init__()
        self.network = _recurrent(config, 2 * config.dim)
        self.score = SCORES[config.score](config.dim, 1)
        self.normalize = pick_one if config.hard else softmax

    def forward(self, tokens: Tensor, memory: Memory, last: State) -> tuple[Tensor, State]:
        """tokens (B, T, D) -> states (B, T, D), and the state after the last token."""
        states, last, _ = self.align(tokens, memory, last)
        return states, last

    def align(self, tokens: Tensor, memory: Memory, last: State) -> tuple[Tensor, State, Tensor]:
        """Like `forward`, and the attention weights a_ti of every step, (B, T, S)."""
        states, weights = [], []
        for token in tokens.split(1, dim=1):  # (B, 1, D)
            context, step_weights = self.attend(memory, last)
            state, last = self.network(torch.cat((token, context), dim=-1), state=last)
            states.append(state)
            weights.append(step_weights)
        return torch.cat(states, dim=1), last, torch.cat(weights, dim=1)

    def attend(self, memory: Memory, last: State) -> tuple[Tensor, Tensor]:
        """s_{t-1} -> the context c_t (B, 1, D) and its weights a_t (B, 1, S)."""
        query = last.top.unsqueeze(1)  # (B, 1, D)
        return attention(query, memory.states, memory.states, memory.real, self.score, normalize=self.normalize)


class RnnEncoderDecoder(Model, ABC):
    """Encodes a source and generates a text; a subclass says how the source is read."""

    def __init__(self, config: RecurrentConfig, size: int, decoder: ContextDecoder | AttentionDecoder, pad: int = 0):
        super().__init__()
        self.pad = pad
        self.target = _token_input(config, size, pad)
        self.first = FirstState(config.dim, config.layers, has_cell_state=decoder.network.has_cell_state)
        self.decoder = decoder
        self.dropout = Dropout(config.dropout)
        self.output = TokenOutput(config.dim, size, bias=False, tied=self.target.tokens.table if config.tied else None)

    @abstractmethod
    def read(self, source: Tensor) -> Memory:
        """Encode the source."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """A source and the target (B, T) -> logits (B, T, V); each sees the tokens before it (teacher forcing)."""
        logits, _ = self.step(target, self.start(source))
        return logits

    def start(self, source: Tensor) -> DecoderState:
        """Encode the source; the state before the first token."""
        memory = self.read(source)
        return DecoderState(memory, self.first(memory.summary))

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        states, last = self.decoder(self.target(ids), state.memory, state.last)
        return self.output(self.dropout(states)), DecoderState(state.memory, last)

    def reorder(self, state: DecoderState, rows: Tensor) -> DecoderState:
        return DecoderState(state.memory.reorder(rows), state.last.reorder(rows))


# --- translation ---

Summary = Callable[[Tensor, State], Tensor]  # states (B, S, D), the state after the last token -> (B, D)


def last_state(_: Tensor, last: State) -> Tensor:
    """c = h_S."""
    return last.top


def all_states(states: Tensor, _: State) -> Tensor:
    """c = Σ h_i."""
    return sum_of_states(states)


def both_ends(_: Tensor, last: State) -> Tensor:
    """[h_S read forwards; h_1 read backwards]."""
    return torch.cat((last.hidden[-2], last.hidden[-1]), dim=-1)


SUMMARIES: dict[ContextName, Summary] = {"last": last_state, "sum": all_states, "attention": both_ends}


class RnnSeq2Seq(RnnEncoderDecoder):
    """Reads the source with one recurrent network, writes the target with another. Padding must be on the right."""

    def __init__(self, config: AlignedConfig, size: int, pad: int = 0):
        attends = config.context == "attention"
        super().__init__(config, size, AttentionDecoder(config) if attends else ContextDecoder(config), pad)
        self.source = self.target if config.tied else _token_input(config, size, pad)
        self.encoder = _bidirectional(config) if attends else _recurrent(config, config.dim)
        self.summarise = SUMMARIES[config.context]

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    def read(self, source: Tensor) -> Memory:
        """source (B, S) -> its states, and their summary."""
        real = padding_mask(source, self.pad)  # (B, 1, S)
        states, last = self.encoder(self.source(source), real.sum((1, 2)))
        return Memory(states, self.summarise(states, last), real)

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, S), target (B, T) -> the attention weights (B, T, S): the lecture's heatmap."""
        if not isinstance(self.decoder, AttentionDecoder):
            raise ConfigError("a decoder with one fixed context has no alignment; train with model.context=attention")
        state = self.start(source)
        _, _, weights = self.decoder.align(self.target(target), state.memory, state.last)
        return weights


# --- captioning ---


class RnnCaptioner(RnnEncoderDecoder):
    """Reads the image into one vector, which is the context of every step."""

    def __init__(self, config: RecurrentPatchConfig, size: int, channels: int, height: int, width: int, pad: int = 0):
        super().__init__(config, size, ContextDecoder(config), pad)
        self.patches = PatchEncoder(config, channels, height, width)
        self.project = nn.Linear(config.dim, config.dim)

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.patches.stack, "decoder": self.decoder}

    def read(self, source: Tensor) -> Memory:
        """Images (B, C, height, width) -> the patches (B, N, D), without the class token, and their mean."""
        patches = self.patches(source)[:, 1:]
        return Memory(patches, self.project(patches.mean(1)))
