import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import PatchEmbedding
from clearhead.nn.patches import cut, paste

side = st.integers(1, 5)


@given(patch=side, rows=side, columns=side, channels=side, batch=st.integers(1, 3))
def test_paste_undoes_cut(patch, rows, columns, channels, batch):
    height, width = rows * patch, columns * patch
    images = torch.arange(batch * channels * height * width).view(batch, channels, height, width)
    patches = cut(images, patch)
    assert patches.shape == (batch, rows * columns, patch * patch * channels)
    assert_close(paste(patches, patch, height, width), images)


def test_patches_come_in_rows_from_the_top_left():
    image = torch.arange(24).view(1, 1, 4, 6)
    patches = cut(image, 2)[0]
    wanted = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19], [14, 15, 20, 21], [16, 17, 22, 23]]
    assert_close(patches, torch.tensor(wanted))


def test_the_channels_of_a_pixel_stand_together():
    red_green_blue = torch.tensor([1, 2, 3]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert cut(red_green_blue, 2)[0, 0].tolist() == [1, 2, 3] * 4


@pytest.mark.parametrize(("height", "width"), [(10, 9), (9, 10), (7, 8), (2, 3)])
def test_patches_must_divide_the_image(height, width):
    message = rf"^patches of 3 × 3 do not divide an image of {height} × {width}$"
    with pytest.raises(ShapeError, match=message):
        PatchEmbedding(3, 1, 5)(torch.zeros(2, 1, height, width))


def test_wrong_number_of_channels():
    with pytest.raises(ShapeError, match=r"^the image has 1 channels and the model was made for 3$"):
        PatchEmbedding(2, 3, 5)(torch.zeros(2, 1, 4, 4))


def test_patch_embedding():
    torch.manual_seed(0)
    embedding, images = PatchEmbedding(2, 3, 5), torch.randn(2, 3, 4, 6)
    assert_close(embedding(images), cut(images, 2) @ embedding.linear.weight.T + embedding.linear.bias)
    assert {name: tuple(p.shape) for name, p in embedding.named_parameters()} == {
        "linear.weight": (5, 12),
        "linear.bias": (5,),
    }
    assert PatchEmbedding(2, 3, 5, bias=False).linear.bias is None
