"""Language models: a stack of causal blocks that predicts the next token, or of open blocks that fills in masked ones.

B batch, T tokens, D width, V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.models import assemble
from clearhead.models.assemble import TokenInput
from clearhead.nn import Cache, TokenOutput, padding_mask


@dataclass
class TextState:
    """What is known between two tokens of a text."""

    cache: list[Cache]
    length: int = 0  # tokens read
    window: int | None = None  # tokens that are looked back at, where that is less than the model's own window


class LanguageModel(nn.Module):
    """p(next token | all before it)."""

    causal = True

    def __init__(self, config: ModelConfig, size: int, pad: int = 0):
        super().__init__()
        self.config, self.pad = config, pad
        self.tokens = TokenInput(config, size)
        self.stack = assemble.encoder(config, causal=self.causal)
        self.output = TokenOutput(config.dim, size, bias=False, tied=self.tokens.tokens.table if config.tied else None)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> logits (B, T, V)."""
        return self.output(self.read(ids))

    def read(self, ids: Tensor) -> Tensor:
        """(B, T) -> what the stack makes of each token, (B, T, D)."""
        return self.stack(self.tokens(ids), mask=assemble.self_mask(self.config, causal=self.causal))

    def start(self, window: int | None = None) -> TextState:
        """Nothing read yet; with a `window` the cache has a fixed size, however long the text becomes."""
        cache = self.stack.make_cache(lambda: assemble.make_cache(self.config, window))
        return TextState(cache, window=window)

    def step(self, ids: Tensor, state: TextState) -> tuple[Tensor, TextState]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        mask = assemble.self_mask(self.config, causal=True, window=state.window)
        x = self.stack(self.tokens(ids, start=state.length), mask=mask, cache=state.cache)
        state.length += ids.size(1)
        return self.output(x), state

    def reorder(self, state: TextState, rows: Tensor) -> TextState:
        """Row i becomes what row rows[i] was."""
        for cache in state.cache:
            cache.reorder(rows)
        return state


class MaskedLanguageModel(LanguageModel):
    """p(masked token | all the others): every token sees both ways, and padding none."""

    causal = False

    def forward(self, ids: Tensor, hidden: Tensor | None = None) -> Tensor:
        """(B, T) -> logits (B, T, V), or (N, V) of the N tokens that are hidden: most of the work is the vocabulary."""
        states = self.read(ids)
        return self.output(states if hidden is None else states[hidden])

    def read(self, ids: Tensor) -> Tensor:
        """(B, T) -> what the stack makes of each token, (B, T, D)."""
        mask = assemble.self_mask(self.config, causal=False) & padding_mask(ids, self.pad)
        return self.stack(self.tokens(ids), mask=mask)
