"""Transformers that read images as a sequence of patches, to label them or to describe them.

The Vision Transformer, where the class token's output is the label:

    z_0 = [x_class; x_p^1 E; …; x_p^N E] + E_pos
    z'_l = MSA(LN(z_{l-1})) + z_{l-1},   z_l = MLP(LN(z'_l)) + z'_l
    y = LN(z_L^0)

    CrossCaptioner      an encoder reads the patches, a decoder with cross-attention writes the caption
    SequenceCaptioner   patches and text are one sequence, read by one language model

Captioners (`RnnCaptioner` too) have the interface of a translator whose source is an image, `forward(images, target)`,
`start(images)`, `step` and `reorder`: captions are decoded like translations.

    B batch, C channels, N patches, T tokens, D width, V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.models import build
from clearhead.models.build import Model
from clearhead.models.config import PatchConfig, PooledPatchConfig
from clearhead.models.lm import LanguageModel, TextState
from clearhead.models.seq2seq import EncoderDecoder
from clearhead.nn import PATCHES, ClassToken, Dropout, ExtraTokens, prefix_mask


class PatchEncoder(nn.Module):
    """From an image to the vector of the class token and one vector for each patch."""

    def __init__(self, config: PatchConfig, channels: int, height: int, width: int):
        super().__init__()
        count = (height // config.patch) * (width // config.patch)
        token_dim = build.token_dim(config)
        self.patches = PATCHES[config.patches](config.patch, channels, token_dim)
        self.class_token = ClassToken(token_dim)
        self.extra_tokens = ExtraTokens(config.extra_tokens, token_dim) if config.extra_tokens else nn.Identity()
        self.positions = build.input_positions(config, max_length=1 + config.extra_tokens + count)
        self.dropout = Dropout(config.dropout)
        self.stack = build.encoder(config)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, 1 + N, D), more where there are extra tokens."""
        tokens = self.class_token(self.extra_tokens(self.patches(images)))
        return self.stack(self.dropout(self.positions(tokens)))


class VisionTransformer(Model):
    """One label for an image."""

    def __init__(self, config: PooledPatchConfig, channels: int, height: int, width: int, classes: int):
        super().__init__()
        self.encoder = PatchEncoder(config, channels, height, width)
        self.output = build.pooled_output(config, classes)

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder.stack}

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> logits (B, classes)."""
        return self.output(self.encoder(images))


# --- captions ---


class CrossCaptioner(EncoderDecoder):
    """A translator whose source is an image; the memory includes the class token, which comes first."""

    def __init__(self, config: PatchConfig, size: int, channels: int, height: int, width: int, pad: int = 0):
        super().__init__(config, size, pad)
        self.patches = PatchEncoder(config, channels, height, width)

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.patches.stack, "decoder": self.decoder}

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, C, height, width) -> memory (B, 1 + N, D), and a mask of ones (B, 1, 1 + N)."""
        memory = self.patches(source)
        return memory, memory.new_ones(memory.size(0), 1, memory.size(1), dtype=torch.bool)


class SequenceCaptioner(Model):
    """A language model whose text begins with an image: patches see each other, words see all before them."""

    def __init__(self, config: PatchConfig, size: int, channels: int, pad: int = 0):
        super().__init__()
        self.config = config
        self.text = LanguageModel(config, size, pad)
        self.patches = PATCHES[config.patches](config.patch, channels, self.text.tokens.tokens.dim)

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
        mask = build.self_mask(self.config, causal=False) & prefix
        return self.text.stack(torch.cat((patches, tokens), dim=1), mask=mask)

    def embed(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, N, D): patches are the first tokens of the sequence."""
        return self.text.tokens.dropout(self.text.tokens.positions(self.patches(images)))

    def start(self, images: Tensor) -> TextState:
        """Read the image; the state before the first token."""
        state, patches = self.text.start(), self.embed(images)
        self.text.stack(patches, mask=build.self_mask(self.config, causal=False), cache=state.cache)
        state.length = patches.size(1)
        return state

    def step(self, ids: Tensor, state: TextState) -> tuple[Tensor, TextState]:
        return self.text.step(ids, state)

    def reorder(self, state: TextState, rows: Tensor) -> TextState:
        return self.text.reorder(state, rows)
