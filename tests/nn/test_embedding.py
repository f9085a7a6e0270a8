import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import NgramEmbedding, PatchEmbedding, TokenEmbedding, TokenOutput, one_hot
from clearhead.nn.embedding import cut_patches


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_one_hot():
    wanted = torch.tensor([[[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]])
    assert_close(one_hot(torch.tensor([[2, 0]]), 4), wanted)
    assert one_hot(torch.tensor([1]), 3, torch.float64).dtype == torch.float64


def test_scale():
    embedding, ids = TokenEmbedding(11, 5, scale=7.0), torch.tensor([[3, 10], [0, 3]])
    assert_close(embedding(ids), 7.0 * embedding.table.weight[ids])


def test_rows_start_with_length_one():
    lengths = TokenEmbedding(1009, 64).table.weight.norm(dim=-1)
    assert_close(lengths.mean(), torch.tensor(1.0), atol=0.01, rtol=0)


def test_padding_is_zero_and_stays_zero():
    embedding = TokenEmbedding(7, 5, pad=2)
    ids = torch.tensor([[2, 3, 2, 0]])
    assert embedding(ids)[0, [0, 2]].eq(0).all()
    optimiser = torch.optim.SGD(embedding.parameters(), lr=1.0)
    (embedding(ids) + 1).square().sum().backward()
    before = embedding.table.weight.clone()
    optimiser.step()
    assert embedding.table.weight[2].eq(0).all()
    assert (embedding.table.weight - before)[[0, 3]].abs().min() > 0


def test_start_from_word_vectors():
    vectors = torch.randn(7, 5)
    embedding = TokenEmbedding(7, 5, pad=2)
    assert embedding.start_from(vectors) is embedding
    assert_close(embedding(torch.tensor([0, 1, 3, 4, 5, 6])), vectors[[0, 1, 3, 4, 5, 6]])
    assert embedding(torch.tensor([2])).eq(0).all()
    assert embedding.table.weight.requires_grad  # they go on learning
    vectors.zero_()
    assert embedding.table.weight.abs().max() > 0  # a copy


@pytest.mark.parametrize("shape", [(7, 6), (8, 5), (5, 7)])
def test_start_from_vectors_of_another_shape(shape):
    message = rf"word vectors of shape \({shape[0]}, {shape[1]}\) do not fit an embedding of shape \(7, 5\)"
    with pytest.raises(ShapeError, match=message):
        TokenEmbedding(7, 5).start_from(torch.randn(*shape))


side = st.integers(1, 5)


@given(patch=side, rows=side, columns=side, channels=side, batch=st.integers(1, 3))
def test_the_patches_put_together_are_the_image(patch, rows, columns, channels, batch):
    height, width = rows * patch, columns * patch
    images = torch.arange(batch * channels * height * width).view(batch, channels, height, width)
    patches = cut_patches(images, patch)
    assert patches.shape == (batch, rows * columns, patch * patch * channels)
    squares = patches.view(batch, rows, columns, patch, patch, channels)
    assert_close(squares.permute(0, 5, 1, 3, 2, 4).reshape(images.shape), images)


def test_patches_come_in_rows_from_the_top_left():
    image = torch.arange(24).view(1, 1, 4, 6)
    patches = cut_patches(image, 2)[0]
    wanted = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19], [14, 15, 20, 21], [16, 17, 22, 23]]
    assert_close(patches, torch.tensor(wanted))


def test_the_channels_of_a_pixel_stand_together():
    red_green_blue = torch.tensor([1, 2, 3]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert cut_patches(red_green_blue, 2)[0, 0].tolist() == [1, 2, 3] * 4


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
    assert_close(embedding(images), cut_patches(images, 2) @ embedding.linear.weight.T + embedding.linear.bias)
    assert {name: tuple(p.shape) for name, p in embedding.named_parameters()} == {
        "linear.weight": (5, 12),
        "linear.bias": (5,),
    }
    assert PatchEmbedding(2, 3, 5, bias=False).linear.bias is None


def test_token_output():
    output, x = TokenOutput(5, 7), torch.randn(2, 3, 5)
    assert_close(output(x), x @ output.linear.weight.T + output.linear.bias)
    assert TokenOutput(5, 7, bias=False).linear.bias is None


def test_tied_output_is_the_embedding():
    embedding = nn.Embedding(7, 5)
    output = TokenOutput(5, 7, bias=False, tied=embedding)
    assert output.linear.weight is embedding.weight
    x = torch.randn(2, 3, 5)
    assert_close(output(x), x @ embedding.weight.T)


def test_tied_shapes_must_fit():
    message = r"an embedding of shape \(11, 5\) cannot be tied to an output of shape \(7, 5\)"
    with pytest.raises(ShapeError, match=message):
        TokenOutput(5, 7, tied=nn.Embedding(11, 5))


def test_ngrams_are_those_that_end_at_a_token() -> None:
    part = NgramEmbedding(longest=3, dim=7, rows=101)
    for table in part.tables:
        nn.init.normal_(table.weight)  # type: ignore[arg-type]
    ids = torch.randint(2, 50, (3, 11))
    x = torch.randn(3, 11, 7)
    found = part(ids, x)
    assert found.shape == x.shape
    # The same two tokens before a third give the same vector anywhere, and another third gives another one.
    twice = torch.tensor([[5, 6, 7, 2, 3, 5, 6, 7, 5, 6, 8]])
    added = part(twice, torch.zeros(1, 11, 7))[0]
    assert torch.equal(added[2], added[7])
    assert not torch.equal(added[7], added[10])
    # What comes later, padding too, changes nothing.
    assert torch.equal(part(ids[:, :5], x[:, :5]), found[:, :5])


def test_no_ngrams_are_no_parameters() -> None:
    part = NgramEmbedding(longest=1, dim=7)
    x = torch.randn(2, 3, 7)
    assert not list(part.parameters())
    assert part(torch.ones(2, 3, dtype=torch.long), x) is x
