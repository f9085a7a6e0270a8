"""Translation with recurrent networks: first through one vector, then with attention.

    encoder   h_t = f(x_t, h_{t-1})
    decoder   s_t = g(y_t, s_{t-1}, c)

    context=last        c = h_S, the last state (Georgia Tech)
    context=sum         c = Σ h_i, the sum of the states (Brown)
    context=attention   c_t = Σ a_ti h_i, and s_0 from the final state (both)

As in Bahdanau's paper, an encoder that is looked at reads both ways: each way has half of the width, so that h_i is
as wide as s_{t-1} and any score can compare the two. The other two read from left to right, as the lectures draw it.

    B batch, S source tokens, T target tokens, D width, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.config import AlignedConfig, ContextName
from clearhead.errors import ConfigError
from clearhead.models.rnn import AttentionDecoder, ContextDecoder, Memory, RnnWriter, plain_tokens, recurrent
from clearhead.nn import Recurrent, State, padding_mask, sum_of_states

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


class RnnSeq2Seq(RnnWriter):
    """Reads the source with one recurrent network, writes the target with another. Padding stands on the right."""

    def __init__(self, config: AlignedConfig, size: int, pad: int = 0):
        attentive = config.context == "attention"
        super().__init__(config, size, AttentionDecoder(config) if attentive else ContextDecoder(config), pad)
        self.source = self.target if config.tied else plain_tokens(config, size, pad)
        self.encoder = reads_both_ways(config) if attentive else recurrent(config, config.dim)
        self.summarise = SUMMARIES[config.context]

    def read(self, source: Tensor) -> Memory:
        """source (B, S) -> its states, and their summary."""
        real = padding_mask(source, self.pad)  # (B, 1, S)
        states, last = self.encoder(self.source(source), real.sum((1, 2)))
        return Memory(states, self.summarise(states, last), real)

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, S), target (B, T) -> (B, T, S): where each step looked, the lecture's heatmap."""
        if not isinstance(self.decoder, AttentionDecoder):
            raise ConfigError("a decoder with one fixed context aligns nothing; train with model.context=attention")
        state = self.start(source)
        _, _, weights = self.decoder.align(self.target(target), state.memory, state.last)
        return weights


def reads_both_ways(config: AlignedConfig) -> Recurrent:
    """An encoder whose state at a word knows what stands before and after it."""
    if config.dim % 2:
        raise ConfigError(f"an rnn that reads both ways has half of the width for each, and dim={config.dim} is odd")
    half = config.dim // 2
    return Recurrent(config.cell, config.dim, half, config.layers, both_ways=True, dropout=config.dropout)
