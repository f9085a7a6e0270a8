"""Patches: an image becomes a sequence by cutting it into squares, each flattened and projected to a token.

    (C, 224, 224) -> 14 × 14 patches of 16 · 16 · C numbers -> (196, D)

This equals a convolution whose stride is the patch size (tested).

    B batch, C channels, P patch size, N patches, D width
"""

from __future__ import annotations

from torch import Tensor, nn

from clearhead.errors import ShapeError


def cut(images: Tensor, patch: int) -> Tensor:
    """(B, C, height, width) -> (B, N, P × P × C): rows of patches from the top left."""
    height, width = images.shape[-2:]
    if height % patch or width % patch:
        raise ShapeError(f"patches of {patch} × {patch} do not divide an image of {height} × {width}")
    squares = images.unflatten(-1, (-1, patch)).unflatten(-3, (-1, patch))  # (B, C, rows, P, columns, P)
    return squares.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def paste(patches: Tensor, patch: int, height: int, width: int) -> Tensor:
    """(B, N, P × P × C) -> (B, C, height, width): the inverse of `cut`."""
    grid = patches.unflatten(1, (height // patch, width // patch))  # (B, rows, columns, P × P × C)
    squares = grid.unflatten(-1, (patch, patch, -1))  # (B, rows, columns, P, P, C)
    return squares.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


class PatchEmbedding(nn.Module):
    """Projects each patch with one matrix that all patches share."""

    def __init__(self, patch: int, channels: int, dim: int, *, bias: bool = True):
        super().__init__()
        self.patch, self.channels = patch, channels
        self.linear = nn.Linear(patch * patch * channels, dim, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, N, D)."""
        if images.size(1) != self.channels:
            raise ShapeError(f"the image has {images.size(1)} channels and the model was made for {self.channels}")
        return self.linear(cut(images, self.patch))
