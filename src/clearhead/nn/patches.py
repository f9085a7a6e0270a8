"""Patches by convolution: the stem of a Vision Transformer that has few images to learn from.

`PatchEmbedding` cuts an image into squares that know nothing of each other; here each patch is seen with its
surroundings, through small filters that are the same everywhere, as in a Compact Convolutional Transformer.

    convolution   (C, 32, 32)  conv 3 × 3, ReLU, pool  (D/2, 16, 16)  conv 3 × 3, ReLU, pool  (D, 8, 8)  ->  (64, D)
    residual      each halving is a convolution with stride 2, followed by a residual block of two convolutions

    B batch, C channels, N patches, D width
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ShapeError
from clearhead.nn.embedding import PatchEmbedding
from clearhead.registry import Registry

MakePatches = Callable[[int, int, int], nn.Module]  # (patch, channels, dim)
PATCHES: Registry[MakePatches] = Registry("patch embedding")
PATCHES.register("linear")(PatchEmbedding)


@PATCHES.register("convolution")
class ConvolutionalPatches(nn.Module):
    """Halves the image until one vector stands for each patch."""

    def __init__(self, patch: int, channels: int, dim: int):
        super().__init__()
        halvings = patch.bit_length() - 1
        if patch < 2 or patch != 1 << halvings:
            raise ShapeError(f"convolutional patches have a side of 2, 4, 8, …, not {patch}")
        self.patch, self.channels = patch, channels
        widths = [channels, *(max(1, dim >> (halvings - 1 - number)) for number in range(halvings))]
        self.halvings = nn.Sequential(*(self.halving(before, after) for before, after in pairwise(widths)))

    @staticmethod
    def halving(before: int, after: int) -> nn.Sequential:
        """(B, before, height, width) -> (B, after, height / 2, width / 2)."""
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, N, D): rows of patches from the top left."""
        if images.size(1) != self.channels:
            raise ShapeError(f"the image has {images.size(1)} channels and the model was made for {self.channels}")
        return self.halvings(images).flatten(2).transpose(1, 2)

    def filters(self) -> Tensor:
        """(D / 2, 3, 3, C): the patterns of the first convolution."""
        weight: Tensor = self.halvings[0][0].weight  # type: ignore[index]
        return weight.detach().permute(0, 2, 3, 1)


@PATCHES.register("residual")
class ResidualPatches(ConvolutionalPatches):
    """Convolutional patches with a residual block after each halving: deeper, for photographs."""

    @staticmethod
    def halving(before: int, after: int) -> nn.Sequential:
        conv = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        return nn.Sequential(conv, _norm(after), nn.ReLU(), ConvolutionBlock(after))


class ConvolutionBlock(nn.Module):
    """x + conv(ReLU(conv(x))), each convolution normalised over the channels and pixels of one image."""

    def __init__(self, channels: int):
        super().__init__()
        # `blocks`, as in a stack of attention: Muon takes the matrices of blocks.
        self.blocks = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(_norm(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, height, width) -> the same."""
        inner = F.relu(self.norms[0](self.blocks[0](x)))
        return F.relu(x + self.norms[1](self.blocks[1](inner)))


def _norm(channels: int) -> nn.Module:
    """Of each image by itself: the result does not depend on the batch, nor on how it is split over processes."""
    return nn.GroupNorm(1, channels)
