"""Translation with attention alone: the model of "Attention Is All You Need", and every variation of its parts.

B batch, S source tokens, T target tokens, D width, V target vocabulary
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.models import build
from clearhead.models.build import TokenInput, TransformerDecoder
from clearhead.models.config import ModelConfig
from clearhead.nn import Decoder, DecoderCache, MultiHeadAttention, padding_mask


@dataclass
class TranslationState:
    """The state between two steps of generating a translation."""

    memory: Tensor  # (B, S, D)
    memory_mask: Tensor  # (B, 1, S)
    cache: list[DecoderCache]
    length: int = 0  # tokens generated


class EncoderDecoder(TransformerDecoder):
    """Generates tokens with a decoder that attends to a memory; a subclass encodes its source into that memory."""

    def __init__(self, config: ModelConfig, size: int, pad: int = 0):
        super().__init__()
        self.config, self.pad = config, pad
        self.target = TokenInput(config, size, pad)
        self.decoder = build.decoder(config)
        self.output = build.token_output(config, size, tied=self.target.tokens.table)

    def stacks(self) -> dict[str, nn.Module]:
        return {"decoder": self.decoder}

    @property
    def decoder_input(self) -> TokenInput:
        return self.target

    @property
    def decoder_stack(self) -> Decoder:
        return self.decoder

    @abstractmethod
    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The source -> memory (B, S, D), and which of it is no padding (B, 1, S)."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source, target (B, T) -> logits (B, T, V): all positions at once, each sees those before it."""
        memory, memory_mask = self.encode(source)
        mask = build.self_mask(self.config, causal=True)
        return self.output(self.decoder(self.target(target), memory, mask=mask, memory_mask=memory_mask))

    def start(self, source: Tensor) -> TranslationState:
        """Encode the source; the state before the first token."""
        cache = self.decoder.make_cache(lambda: build.make_cache(self.config))
        return TranslationState(*self.encode(source), cache)

    def step(self, ids: Tensor, state: TranslationState) -> tuple[Tensor, TranslationState]:
        """The next tokens (B, T) -> logits (B, T, V) of the token after each."""
        mask = build.self_mask(self.config, causal=True)
        x = self.target(ids, start=state.length)
        x = self.decoder(x, state.memory, mask=mask, memory_mask=state.memory_mask, cache=state.cache)
        state.length += ids.size(1)
        return self.output(x), state

    def step_with_attention(self, ids: Tensor, state: TranslationState) -> tuple[Tensor, Tensor, TranslationState]:
        """Like `step`, and the last layer's cross-attention (B, T, S), averaged over heads; 1 for padding."""
        layer: MultiHeadAttention = self.decoder.blocks[-1].cross_attention  # type: ignore[assignment]
        inputs_seen: list[Tensor] = []
        hook = layer.register_forward_pre_hook(lambda _, inputs: inputs_seen.append(inputs[0]))
        try:
            logits, state = self.step(ids, state)
        finally:
            hook.remove()
        weights = layer.weights(inputs_seen[0], state.memory, mask=state.memory_mask)  # (B, H, T, S)
        return logits, weights.mean(1).masked_fill(~state.memory_mask, 1.0), state

    def reorder(self, state: TranslationState, rows: Tensor) -> TranslationState:
        for cache in state.cache:
            cache.reorder(rows)
        return TranslationState(state.memory[rows], state.memory_mask[rows], state.cache, state.length)


class Seq2Seq(EncoderDecoder):
    """Encoder and decoder with one vocabulary; with `tied`, one matrix embeds both sides and is the output.

    `source_input` says what else the two sides share: all of their input, only the token vectors, or nothing.
    """

    def __init__(self, config: ModelConfig, size: int, pad: int = 0):
        super().__init__(config, size, pad)
        shares = config.source_input or ("shared" if config.tied else "own")
        self.source = self.target if shares == "shared" else TokenInput(config, size, pad)
        if shares == "tokens":
            self.source.tokens = self.target.tokens
        self.encoder = build.encoder(config)

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """source (B, S) -> memory (B, S, D), and which of it is no padding (B, 1, S)."""
        real = padding_mask(source, self.pad)
        mask = build.self_mask(self.config, causal=False) & real
        return self.encoder(self.source(source), mask=mask), real
