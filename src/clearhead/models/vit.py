"""The Vision Transformer: an image is a sequence of patches, and the class token's output is its label.

z_0 = [x_class; x_p^1 E; …; x_p^N E] + E_pos
z'_l = MSA(LN(z_{l-1})) + z_{l-1},   z_l = MLP(LN(z'_l)) + z'_l
y = LN(z_L^0)

B batch, C channels, N patches, D width
"""

from __future__ import annotations

from torch import Tensor, nn

from clearhead.models import assemble
from clearhead.models.base import Model
from clearhead.models.config import PatchConfig, PooledPatchConfig
from clearhead.nn import POOLS, ClassToken, PatchEmbedding, SequenceOutput
from clearhead.nn.dropout import Dropout


class PatchEncoder(nn.Module):
    """From an image to the vector of the class token and one vector for each patch."""

    def __init__(self, config: PatchConfig, channels: int, height: int, width: int):
        super().__init__()
        count = (height // config.patch) * (width // config.patch)
        token_dim = assemble.token_dim(config)
        self.patches = PatchEmbedding(config.patch, channels, token_dim)
        self.class_token = ClassToken(token_dim)
        self.positions = assemble.input_positions(config, max_length=1 + count)
        self.dropout = Dropout(config.dropout)
        self.stack = assemble.encoder(config)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, 1 + N, D)."""
        return self.stack(self.dropout(self.positions(self.class_token(self.patches(images)))))


class VisionTransformer(Model):
    """One label for an image."""

    def __init__(self, config: PooledPatchConfig, channels: int, height: int, width: int, classes: int):
        super().__init__()
        self.encoder = PatchEncoder(config, channels, height, width)
        self.output = SequenceOutput(config.dim, classes, POOLS[config.pool])

    def stacks(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder.stack}

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> logits (B, classes)."""
        return self.output(self.encoder(images))
