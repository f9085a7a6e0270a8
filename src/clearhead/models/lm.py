"""Language models: a stack of causal blocks that predicts the next token, or of open blocks that fills in masked ones.

B batch, T tokens, D width, V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from clearhead.models import build
from clearhead.models.build import Model, TokenInput, TransformerDecoder
from clearhead.models.config import ModelConfig
from clearhead.nn import Cache, Encoder, padding_mask


@dataclass
class TextState:
    """The state between two tokens of a text."""

    cache: list[Cache]
    length: int = 0  # tokens read
    window: int | None = None  # tokens each token sees, where that is less than the model's own window


class _TokenStack(Model):
    """Token embedding, blocks of self-attention, logits for each token."""

    causal: ClassVar[bool]

    def __init__(self, config: ModelConfig, size: int, pad: int = 0):
        super().__init__()
        self.config, self.pad = config, pad
        self.tokens = TokenInput(config, size)
        self.stack = build.encoder(config, causal=self.causal)
        self.output = build.token_output(config, size, tied=self.tokens.tokens.table)


class LanguageModel(_TokenStack, TransformerDecoder):
    """p(next token | all before it)."""

    causal = is_causal_lm = True

    def stacks(self) -> dict[str, nn.Module]:
        return {"decoder": self.stack}

    @property
    def decoder_input(self) -> TokenInput:
        return self.tokens

    @property
    def decoder_stack(self) -> Encoder:
        return self.stack

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> logits (B, T, V)."""
        return self.output(self.read(ids))

    def read(self, ids: Tensor) -> Tensor:
        """(B, T) -> the output of the stack for each token, (B, T, D)."""
        return self.stack(self.tokens(ids), mask=build.self_mask(self.config, causal=True))

    def start(self, window: int | None = None) -> TextState:
        """The state before the first token; with a `window` the cache has a fixed size."""
        cache = self.stack.make_cache(lambda: build.make_cache(self.config, window))
        return TextState(cache, window=window)

    def step(self, ids: Tensor, state: TextState) -> tuple[Tensor, TextState]:
        """The next tokens (B, T) -> logits (B, T, V) of the token after each."""
        mask = build.self_mask(self.config, causal=True, window=state.window)
        x = self.stack(self.tokens(ids, start=state.length), mask=mask, cache=state.cache)
        state.length += ids.size(1)
        return self.output(x), state

    def reorder(self, state: TextState, rows: Tensor) -> TextState:
        for cache in state.cache:
            cache.reorder(rows)
        return state


class MaskedLanguageModel(_TokenStack):
    """p(masked token | all the others): every token sees both ways; padding is hidden."""

    causal = False

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.stack}

    def forward(self, ids: Tensor, hidden: Tensor | None = None) -> Tensor:
        """(B, T) -> logits (B, T, V), or (N, V) of the N tokens where `hidden` (B, T): the vocabulary is most work."""
        states = self.read(ids)
        return self.output(states if hidden is None else states[hidden])

    def read(self, ids: Tensor) -> Tensor:
        """(B, T) -> the output of the stack for each token, (B, T, D)."""
        mask = build.self_mask(self.config, causal=False) & padding_mask(ids, self.pad)
        return self.stack(self.tokens(ids), mask=mask)
