import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import ClassToken, FlattenOutput, SequenceOutput, first_token, last_token, mean_token


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


REAL = torch.tensor([[True, True, False], [False, True, True], [True, True, True], [True, False, False]])


@pytest.mark.parametrize(
    ("pool", "wanted"),
    [
        (first_token, lambda x: x[:, 0]),
        (last_token, lambda x: torch.stack([x[0, 1], x[1, 2], x[2, 2], x[3, 0]])),
        (mean_token, lambda x: torch.stack([x[0, :2].mean(0), x[1, 1:].mean(0), x[2].mean(0), x[3, 0]])),
    ],
)
def test_pooling_of_real_tokens(pool, wanted):
    x = torch.randn(4, 3, 5)
    assert_close(pool(x, REAL), wanted(x))


@pytest.mark.parametrize(
    ("pool", "wanted"),
    [(first_token, lambda x: x[:, 0]), (last_token, lambda x: x[:, -1]), (mean_token, lambda x: x.mean(1))],
)
def test_pooling_when_all_are_real(pool, wanted):
    x = torch.randn(4, 3, 5)
    assert_close(pool(x), wanted(x))
    assert_close(pool(x, torch.ones(4, 3, dtype=torch.bool)), wanted(x))


def test_the_mean_of_nothing_is_zero():
    assert_close(mean_token(torch.randn(2, 3, 5), torch.zeros(2, 3, dtype=torch.bool)), torch.zeros(2, 5))


@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_padding_does_not_change_a_pooled_vector(lengths, seed):
    torch.default_generator.manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), 3)
    real = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(-1)
    for pool in (first_token, last_token, mean_token):
        alone = torch.cat([pool(x[row : row + 1, :length]) for row, length in enumerate(lengths)])
        assert_close(pool(x, real), alone)


def test_class_token_stands_first():
    token, x = ClassToken(5), torch.randn(2, 3, 5)
    assert_close(token(x), torch.cat([token.vector.expand(2, 1, 5), x], dim=1))
    assert_close(first_token(token(x)), token.vector.expand(2, 5))
    assert {name: p.shape for name, p in token.named_parameters()} == {"vector": (5,)}


@pytest.mark.parametrize("pool", [first_token, last_token, mean_token])
def test_sequence_output(pool):
    output, x = SequenceOutput(5, 7, pool), torch.randn(4, 3, 5)
    assert_close(output(x, REAL), output.linear(pool(x, REAL)))
    assert_close(output(x), output.linear(pool(x)))


def test_flatten_output_counts_padding_as_zeros():
    output, x = FlattenOutput(5, 3, 7), torch.randn(2, 4, 3)
    real = torch.tensor([[True, True, False, False], [True] * 4])
    filled = torch.zeros(2, 5, 3)
    filled[0, :2], filled[1, :4] = x[0, :2], x[1]
    assert_close(output(x, real), output.linear(filled.flatten(1)))
    assert_close(output(x, real)[:1], output(x[:1, :2]))


def test_flatten_output_of_too_long_a_sequence():
    with pytest.raises(ShapeError, match=r"^a sequence of 6 tokens does not fit an output made for 5$"):
        FlattenOutput(5, 3, 7)(torch.randn(2, 6, 3))
