"""Attention does not know the order of its tokens; positions put it in."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from clearhead.nn import (
    Alibi,
    Encoder,
    EncoderBlock,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    RelativePositions,
    Rotary,
    SinusoidalPositions,
    T5Relative,
    TokenEmbedding,
    concatenate_positions,
)

DIM, HEADS = 12, 3
WORDS = {word: i for i, word in enumerate(("She", "prefers", "cats", "to", "dogs"))}
SCHEMES = {
    "sinusoidal": lambda: (SinusoidalPositions(DIM), None),
    "learned": lambda: (LearnedPositions(DIM, 16), None),
    "rotary": lambda: (NoPositions(), Rotary(DIM // HEADS)),
    "alibi": lambda: (NoPositions(), Alibi(HEADS)),
    "t5": lambda: (NoPositions(), T5Relative(HEADS)),
}


def encoder(relative: RelativePositions | None = None) -> Encoder:
    attentions = [MultiHeadAttention(DIM, HEADS, relative=relative) for _ in range(2)]
    return Encoder([EncoderBlock(DIM, HEADS, attention=attention) for attention in attentions]).double()


def ids(sentence: str) -> Tensor:
    return torch.tensor([[WORDS[word] for word in sentence.split()]])


CATS_TO_DOGS, DOGS_TO_CATS = ids("She prefers cats to dogs"), ids("She prefers dogs to cats")
BACK = torch.tensor([0, 1, 4, 3, 2])  # where each word of the first sentence stands in the second


def test_self_attention_is_permutation_equivariant():
    """002: "Self-attention layer is Permutation Equivariant f(s(x)) = s(f(x))"; 004: "Z_R = R P X W_V"."""
    torch.manual_seed(0)
    x = torch.randn(1, 7, DIM, dtype=torch.float64)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    matrix = torch.eye(7, dtype=torch.float64)[order]  # R
    layer = MultiHeadAttention(DIM, HEADS).double()
    assert_close(layer(matrix @ x), matrix @ layer(x))
    assert_close(layer.weights(matrix @ x), matrix @ layer.weights(x) @ matrix.T)


def test_stack_is_permutation_equivariant():
    """004: "equivalent to a permutation of the original output", through whole blocks."""
    torch.manual_seed(1)
    x, order = torch.randn(2, 7, DIM, dtype=torch.float64), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    stack = encoder()
    assert_close(stack(x[:, order]), stack(x)[:, order])


def test_without_positions_the_two_sentences_are_one():
    """004: "In practice, the input order matters: 'She prefers cats to dogs' ≠ 'She prefers dogs to cats'"."""
    torch.manual_seed(2)
    embed, stack = TokenEmbedding(len(WORDS), DIM).double(), encoder()
    first, second = stack(embed(CATS_TO_DOGS))[0], stack(embed(DOGS_TO_CATS))[0]
    assert_close(first, second[BACK])  # every word has the same vector in both
    assert_close(first[first[:, 0].argsort()], second[second[:, 0].argsort()])  # the same multiset of vectors
    assert (first - second)[2].norm() > 0.1  # only the places differ


@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_positions_the_two_sentences_differ(scheme):
    """004: "Solution: incorporate a positional encoding in the network"."""
    torch.manual_seed(3)
    positions, relative = SCHEMES[scheme]()
    embed, stack = TokenEmbedding(len(WORDS), DIM).double(), encoder(relative)
    positions.double()
    if scheme in ("learned", "t5"):
        nn.init.normal_((relative or positions).table.weight)  # as if trained: they start near zero
    first, second = (stack(positions(embed(sentence)))[0] for sentence in (CATS_TO_DOGS, DOGS_TO_CATS))
    assert ((first - second[BACK]).norm(dim=-1) > 1e-3).all()  # every word notices, even those that stayed


@pytest.mark.parametrize("base", [10000.0, 100.0, 37.5])
@pytest.mark.parametrize("dim", [7, 8, 18])
def test_positional_vector_p_4(dim, base):
    """003: "For example for the word in the pos = 4: p_4 = [… cos(4/N^(0/d)), sin(4/N^(2/d)), cos(4/N^(2/d)), …]"."""
    angles = [4 / base ** (2 * (column // 2) / dim) for column in range(dim)]
    p_4 = [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]
    positions = SinusoidalPositions(dim, base)
    assert_close(positions.encode(5)[4], torch.tensor(p_4))
    assert_close(positions.encode(1, start=4)[0], torch.tensor(p_4))


def test_positions_are_added():
    """003: "add its respective positional vector p_1, …, p_T to get x_1, …, x_T"; here the first is p_0."""
    torch.manual_seed(4)
    positions, words = SinusoidalPositions(6), torch.randn(2, 5, 6)
    p = torch.stack([positions.encode(1, start=t)[0] for t in range(5)])
    assert_close(positions(words), words + p)


def test_learned_positions_are_one_hot_times_matrix():
    """004: "X = [e_i1ᵀ; …; e_iTᵀ] W_emb + [e_1ᵀ; …; e_Tᵀ] W_pos"."""
    torch.manual_seed(5)
    positions, words = LearnedPositions(7, 11), torch.randn(2, 5, 7)
    assert_close(positions(words), words + torch.eye(11)[:5] @ positions.table.weight)


def test_positions_are_concatenated():
    """002: "In order to make processing position-aware, concatenate input with positional encoding"."""
    torch.manual_seed(6)
    words = torch.randn(2, 5, 3)
    fixed, learned = (
        SinusoidalPositions(4, combine=concatenate_positions),
        LearnedPositions(4, 11, combine=concatenate_positions),
    )
    assert_close(fixed(words), torch.cat([words, fixed.encode(5).expand(2, 5, 4)], dim=-1))
    assert_close(learned(words), torch.cat([words, learned.table.weight[:5].expand(2, 5, 4)], dim=-1))


def test_dot_products_fall_with_distance():
    """000: "sinusoidal patterns such that … their dot products w/ each other reflect the distance between them"."""
    p = SinusoidalPositions(128).double().encode(61)
    products = p @ p.T
    for i in range(0, 60, 7):  # the same for every pair at one distance
        assert_close(products.diagonal(i), products[0, i].expand(61 - i), atol=1e-4, rtol=0)
    assert (products[0, :6].diff() < 0).all()  # strictly falling nearby
    assert (products[0, :60].view(6, 10).mean(1).diff() < 0).all()  # and on average farther out
    frequencies = 10000.0 ** -(torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    assert_close(products[0], torch.cos(torch.arange(61).unsqueeze(-1) * frequencies).sum(-1), atol=1e-4, rtol=0)
