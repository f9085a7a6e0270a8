"""Translation with attention alone: the model of "Attention Is All You Need", and every variation of its parts.

B batch, S source tokens, T target tokens, D width, V target vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.models import assemble
from clearhead.models.assemble import TokenInput
from clearhead.nn import DecoderCache, MultiHeadAttention, TokenOutput, padding_mask


@dataclass
class TranslationState:
    """What is known between two steps of writing a translation."""

    memory: Tensor  # (B, S, D)
    memory_mask: Tensor  # (B, 1, S)
    cache: list[DecoderCache]
    length: int = 0  # tokens written


class AttentionWriter(nn.Module, ABC):
    """Writes tokens with a decoder that looks at a memory; a subclass says what is read into the memory."""

    def __init__(self, config: ModelConfig, size: int, pad: int = 0):
        super().__init__()
        self.config, self.pad = config, pad
        self.target = TokenInput(config, size, pad)
        self.decoder = assemble.decoder(config)
        tied = self.target.tokens.table if config.tied else None
        self.output = TokenOutput(config.dim, size, bias=False, tied=tied)

    @abstractmethod
    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """What is read -> memory (B, S, D) and which of it is real (B, 1, S)."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source, target (B, T) -> logits (B, T, V): all positions at once, each seeing those before it."""
        memory, memory_mask = self.encode(source)
        mask = assemble.self_mask(self.config, causal=True)
        return self.output(self.decoder(self.target(target), memory, mask=mask, memory_mask=memory_mask))

    def start(self, source: Tensor) -> TranslationState:
        """Read, ready to write."""
        cache = self.decoder.make_cache(lambda: assemble.make_cache(self.config))
        return TranslationState(*self.encode(source), cache)

    def step(self, ids: Tensor, state: TranslationState) -> tuple[Tensor, TranslationState]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        mask = assemble.self_mask(self.config, causal=True)
        x = self.target(ids, start=state.length)
        x = self.decoder(x, state.memory, mask=mask, memory_mask=state.memory_mask, cache=state.cache)
        state.length += ids.size(1)
        return self.output(x), state

    def step_with_attention(self, ids: Tensor, state: TranslationState) -> tuple[Tensor, Tensor, TranslationState]:
        """Like `step`, and where the last layer looked, (B, T, S), as the mean of its heads; padding counts as seen."""
        layer: MultiHeadAttention = self.decoder.blocks[-1].cross_attention  # type: ignore[assignment]
        read: list[Tensor] = []
        hook = layer.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        try:
            logits, state = self.step(ids, state)
        finally:
            hook.remove()
        weights = layer.weights(read[0], state.memory, mask=state.memory_mask)  # (B, H, T, S)
        return logits, weights.mean(1).masked_fill(~state.memory_mask, 1.0), state

    def reorder(self, state: TranslationState, rows: Tensor) -> TranslationState:
        """Row i becomes what row rows[i] was."""
        for cache in state.cache:
            cache.reorder(rows)
        return TranslationState(state.memory[rows], state.memory_mask[rows], state.cache, state.length)


class Seq2Seq(AttentionWriter):
    """Reads the source with an encoder; one vocabulary serves both sides, and with `tied` one matrix all three uses."""

    def __init__(self, config: ModelConfig, size: int, pad: int = 0):
        super().__init__(config, size, pad)
        self.source = self.target if config.tied else TokenInput(config, size, pad)
        self.encoder = assemble.encoder(config)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """source (B, S) -> memory (B, S, D) and which of it is real (B, 1, S)."""
        real = padding_mask(source, self.pad)
        mask = assemble.self_mask(self.config, causal=False) & real
        return self.encoder(self.source(source), mask=mask), real
