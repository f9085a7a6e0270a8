"""Patches by convolution."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.look.views.patches import patch_components
from clearhead.nn import PATCHES, ConvolutionalPatches, PatchEmbedding, ResidualPatches


@pytest.mark.parametrize("name", ["linear", "convolution", "residual"])
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


def test_residual_patches_are_in_the_order_of_the_linear_ones() -> None:
    torch.manual_seed(1)
    images = torch.randn(1, 1, 16, 24)
    changed = images.clone()
    changed[0, 0, 5:7, 17:19] += 0.1  # in the patch of row 1, column 4; the norms carry a little of it everywhere
    found = ResidualPatches(4, 1, 64)
    moved = (found(changed) - found(images)).norm(dim=-1)[0].view(4, 6)
    assert moved.argmax() == 6 * 1 + 4


def test_a_residual_halving_is_its_equation() -> None:
    torch.manual_seed(2)
    embedding, images = ResidualPatches(2, 3, 5), torch.randn(7, 3, 6, 10)
    stride, norm, _, block = embedding.halvings[0]
    x = F.relu(norm(stride(images)))
    inner = F.relu(block.norms[0](block.blocks[0](x)))
    wanted = F.relu(x + block.norms[1](block.blocks[1](inner)))
    assert_close(embedding(images), wanted.flatten(2).transpose(1, 2))


def test_an_image_is_read_alike_in_every_batch() -> None:
    torch.manual_seed(3)
    embedding, images = ResidualPatches(4, 1, 6).train(), torch.randn(5, 1, 12, 8)
    assert_close(embedding(images)[3:4], embedding(images[3:4]))


def test_errors_and_filters() -> None:
    with pytest.raises(ShapeError, match="a side of 2, 4, 8, …, not 6"):
        ConvolutionalPatches(6, 1, 8)
    with pytest.raises(ShapeError, match="the image has 3 channels and the model was made for 1"):
        ConvolutionalPatches(2, 1, 8)(torch.zeros(1, 3, 4, 4))
    assert ConvolutionalPatches(4, 3, 10).filters().shape == (5, 3, 3, 3)
    assert ResidualPatches(4, 3, 10).filters().shape == (5, 3, 3, 3)
    assert PatchEmbedding(4, 3, 10).filters().shape == (10, 4, 4, 3)
    assert patch_components(ConvolutionalPatches(4, 3, 10)).components.shape == (5, 3, 3, 3)
