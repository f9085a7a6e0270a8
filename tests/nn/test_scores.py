import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.nn import AdditiveScore, BilinearScore, CosineScore, cosine, dot, scaled_dot

H, T, S, D = 3, 5, 7, 4


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@torch.no_grad()
def one_by_one(function, q: Tensor, k: Tensor) -> Tensor:
    """function(head, query, key) for every head, query and key: (2, H, T, S)."""
    scores = torch.empty(2, H, T, S, dtype=torch.float64)
    for b, h, t, s in product(range(2), range(H), range(T), range(S)):
        scores[b, h, t, s] = function(h, q[b, h, t], k[b, h, s])
    return scores


def some(size: int = D) -> tuple[Tensor, Tensor]:
    return torch.randn(2, H, T, size, dtype=torch.float64), torch.randn(2, H, S, D, dtype=torch.float64)


@pytest.mark.parametrize(
    ("score", "by_hand"),
    [
        (dot, lambda _, q, k: sum(q * k)),
        (scaled_dot, lambda _, q, k: sum(q * k) / math.sqrt(D)),
        (cosine, lambda _, q, k: sum(q * k) / math.sqrt(sum(q * q) * sum(k * k))),
    ],
)
def test_scores_without_parameters(score, by_hand):
    q, k = some()
    assert_close(score(q, k), one_by_one(by_hand, q, k))


def test_cosine_of_a_zero_vector_is_zero():
    k = torch.randn(3, D, requires_grad=True)
    scores = cosine(torch.zeros(2, D), k)
    assert_close(scores, torch.zeros(2, 3))
    assert torch.autograd.grad(scores.sum(), k)[0].isfinite().all()


@pytest.mark.parametrize("heads", [None, H])
def test_cosine_with_a_temperature(heads):
    score = CosineScore(heads).double()
    torch.nn.init.normal_(score.sharpness)
    q, k = some()
    sharpness = score.sharpness.expand(H, 1, 1)
    wanted = one_by_one(lambda h, q, k: sharpness[h, 0, 0] * sum(q * k) / math.sqrt(sum(q * q) * sum(k * k)), q, k)
    assert_close(score(q, k), wanted)


def of_head(matrix: Tensor, head: int) -> Tensor:
    return matrix if matrix.dim() == 2 else matrix[head]


@pytest.mark.parametrize("heads", [None, H])
@pytest.mark.parametrize("size", [D, 6])
def test_additive(heads, size):
    score = AdditiveScore(size, D, hidden=11, heads=heads).double()
    q, k = some(size)

    def by_hand(h, q, k):
        hidden = torch.tanh(q @ of_head(score.query, h) + k @ of_head(score.key, h))
        return hidden @ of_head(score.weight, h)[:, 0]

    assert_close(score(q, k), one_by_one(by_hand, q, k))


@pytest.mark.parametrize("heads", [None, H])
@pytest.mark.parametrize("size", [D, 6])
def test_bilinear(heads, size):
    score = BilinearScore(size, D, heads=heads).double()
    q, k = some(size)
    assert_close(score(q, k), one_by_one(lambda h, q, k: q @ of_head(score.weight, h) @ k, q, k))


@pytest.mark.parametrize(
    ("score", "shapes"),
    [
        (CosineScore(), {"sharpness": (1, 1)}),
        (CosineScore(3), {"sharpness": (3, 1, 1)}),
        (BilinearScore(5), {"weight": (5, 5)}),
        (BilinearScore(5, 7, heads=3), {"weight": (3, 5, 7)}),
        (AdditiveScore(5), {"query": (5, 5), "key": (5, 5), "weight": (5, 1)}),
        (AdditiveScore(5, 7, 11, 3), {"query": (3, 5, 11), "key": (3, 7, 11), "weight": (3, 11, 1)}),
    ],
)
def test_parameters(score, shapes):
    assert {name: tuple(p.shape) for name, p in score.named_parameters()} == shapes


def test_heads_have_parameters_of_their_own():
    score = BilinearScore(D, heads=H).double()
    q, k = some()
    same = score(q[:, :1].expand(-1, H, -1, -1), k[:, :1].expand(-1, H, -1, -1))
    assert (same[:, 0] - same[:, 1]).abs().max() > 0.1
