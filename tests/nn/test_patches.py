"""Patches by convolution."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ShapeError
from clearhead.look.views.patches import patch_components
from clearhead.nn import PATCHES, ConvolutionalPatches, PatchEmbedding


@pytest.mark.parametrize("name", ["linear", "convolution"])
@pytest.mark.parametrize("patch", [2, 4, 8])
def test_there_is_one_vector_for_each_patch(name: str, patch: int) -> None:
    images = torch.randn(3, 2, 5 * patch, 7 * patch)
    assert PATCHES[name](patch, 2, 11)(images).shape == (3, 35, 11)


def test_a_patch_sees_its_surroundings_and_not_the_whole_image() -> None:
    torch.manual_seed(1)
    embedding, images = ConvolutionalPatches(4, 1, 6), torch.randn(1, 1, 40, 40, requires_grad=True)
    embedding(images)[0, 44].sum().backward()  # row 4, column 4 of 10 × 10
    assert images.grad is not None
    rows = images.grad[0, 0].abs().sum(1).nonzero().flatten().tolist()
    assert min(rows) < 16
    assert max(rows) > 19
    assert min(rows) >= 16 - 8
    assert max(rows) <= 19 + 8


def test_patches_are_in_the_order_of_the_linear_ones() -> None:
    images = torch.zeros(1, 1, 16, 24)
    images[0, 0, 5:7, 17:19] = 1  # in the patch of row 1, column 4
    for name in ("linear", "convolution"):
        torch.manual_seed(1)
        found = PATCHES[name](4, 1, 64)
        moved = (found(images) - found(torch.zeros_like(images))).norm(dim=-1)[0].view(4, 6)
        assert moved[1, 4] > 0
        rows, columns = moved.nonzero(as_tuple=True)
        assert int((rows - 1).abs().max()) <= 2
        assert int((columns - 4).abs().max()) <= 2


def test_errors_and_filters() -> None:
    with pytest.raises(ShapeError, match="a side of 2, 4, 8, …, not 6"):
        ConvolutionalPatches(6, 1, 8)
    with pytest.raises(ShapeError, match="the image has 3 channels and the model was made for 1"):
        ConvolutionalPatches(2, 1, 8)(torch.zeros(1, 3, 4, 4))
    assert ConvolutionalPatches(4, 3, 10).filters().shape == (5, 3, 3, 3)
    assert PatchEmbedding(4, 3, 10).filters().shape == (10, 4, 4, 3)
    assert patch_components(ConvolutionalPatches(4, 3, 10)).components.shape == (5, 3, 3, 3)
