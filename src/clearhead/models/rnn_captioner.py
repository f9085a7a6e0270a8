"""Describing an image with a recurrent network ("Show and Tell"): the image is one vector, and the decoder's context.

c = W · mean of the patch vectors,   s_0 = tanh(W_0 c),   s_t = g(y_t, s_{t-1}, c)

B batch, C channels, N patches, D width
"""

from __future__ import annotations

from torch import Tensor, nn

from clearhead.config import RecurrentPatchConfig
from clearhead.models.rnn import ContextDecoder, Memory, RnnWriter
from clearhead.models.vit import PatchEncoder


class RnnCaptioner(RnnWriter):
    """Looks at the image once, then writes."""

    def __init__(self, config: RecurrentPatchConfig, size: int, channels: int, height: int, width: int, pad: int = 0):
        super().__init__(config, size, ContextDecoder(config), pad)
        self.patches = PatchEncoder(config, channels, height, width)
        self.project = nn.Linear(config.dim, config.dim)

    def read(self, source: Tensor) -> Memory:
        """Images (B, C, height, width) -> the patches (B, N, D), without the class token, and their mean."""
        patches = self.patches(source)[:, 1:]
        return Memory(patches, self.project(patches.mean(1)))
