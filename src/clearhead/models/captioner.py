"""Describing an image with attention, in two ways:

    CrossCaptioner      an encoder reads the patches, a decoder with cross-attention writes the caption
    SequenceCaptioner   patches and text are one sequence, read by one language model

Both have the interface of a translator whose source is an image: `forward(images, target)`, `start(images)`, `step`
and `reorder`; so has `RnnCaptioner`. Captions are therefore decoded like translations.

    B batch, C channels, N patches, T tokens, D width, V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.models import assemble
from clearhead.models.base import Model
from clearhead.models.config import PatchConfig
from clearhead.models.lm import LanguageModel, TextState
from clearhead.models.seq2seq import AttentionWriter
from clearhead.models.vit import PatchEncoder
from clearhead.nn import PatchEmbedding, prefix_mask


class CrossCaptioner(AttentionWriter):
    """A translator whose source is an image; the memory includes the class token, which comes first."""

    def __init__(self, config: PatchConfig, size: int, channels: int, height: int, width: int, pad: int = 0):
        super().__init__(config, size, pad)
        self.patches = PatchEncoder(config, channels, height, width)

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.patches.stack, "decoder": self.decoder}

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, C, height, width) -> memory (B, 1 + N, D), and a mask of ones (B, 1, 1 + N)."""
        memory = self.patches(source)
        return memory, memory.new_ones(len(memory), 1, memory.size(1), dtype=torch.bool)


class SequenceCaptioner(Model):
    """A language model whose text begins with an image: patches see each other, words see all before them."""

    def __init__(self, config: PatchConfig, size: int, channels: int, pad: int = 0):
        super().__init__()
        self.config = config
        self.text = LanguageModel(config, size, pad)
        self.patches = PatchEmbedding(config.patch, channels, self.text.tokens.tokens.dim)

    def stacks(self) -> dict[str, nn.Module]:
        return self.text.stacks()

    def forward(self, images: Tensor, target: Tensor) -> Tensor:
        """images (B, C, height, width), target (B, T) -> logits (B, T, V)."""
        return self.text.output(self.read(images, target)[:, -target.size(1) :])

    def read(self, images: Tensor, target: Tensor) -> Tensor:
        """The output of the stack for each patch and each token, (B, N + T, D)."""
        patches = self.embed(images)
        tokens = self.text.tokens(target, start=patches.size(1))
        prefix = prefix_mask(patches.size(1), tokens.size(1), images.device)
        mask = assemble.self_mask(self.config, causal=False) & prefix
        return self.text.stack(torch.cat((patches, tokens), dim=1), mask=mask)

    def embed(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, N, D): patches are the first tokens of the sequence."""
        return self.text.tokens.dropout(self.text.tokens.positions(self.patches(images)))

    def start(self, images: Tensor) -> TextState:
        """Read the image; the state before the first token."""
        state, patches = self.text.start(), self.embed(images)
        self.text.stack(patches, mask=assemble.self_mask(self.config, causal=False), cache=state.cache)
        state.length = patches.size(1)
        return state

    def step(self, ids: Tensor, state: TextState) -> tuple[Tensor, TextState]:
        """The next tokens (B, T) -> logits (B, T, V) of the token after each."""
        return self.text.step(ids, state)

    def reorder(self, state: TextState, rows: Tensor) -> TextState:
        """Row i becomes what row rows[i] was."""
        return self.text.reorder(state, rows)
