import pytest
import torch
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import TokenEmbedding, one_hot


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
