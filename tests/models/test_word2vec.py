"""Skip-gram against the lecture's equation and a slow sum."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.models.word2vec import SkipGram

from .setting import memorise

V, D, PAIRS, K = 11, 5, 7, 3


@pytest.fixture
def model() -> SkipGram:
    torch.manual_seed(0)
    model = SkipGram(V, D).double()
    torch.nn.init.normal_(model.context.weight)
    torch.nn.init.normal_(model.center.weight)
    return model


def dot(model: SkipGram, a: int | Tensor, b: int | Tensor) -> float:
    """v_a · v_b, b as a context."""
    pairs = zip(model.center.weight[int(a)].tolist(), model.context.weight[int(b)].tolist(), strict=True)
    return sum(x * y for x, y in pairs)


def probability(model: SkipGram, b: int | Tensor, a: int | Tensor) -> float:
    """The lecture's key equation 16: P{b | a} = exp(v_a · v_b) / Σ_i exp(v_a · v_i)."""
    return math.exp(dot(model, a, b)) / sum(math.exp(dot(model, a, i)) for i in range(V))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_probabilities_are_the_lectures_equation(model: SkipGram) -> None:
    table = torch.tensor([[probability(model, b, a) for b in range(V)] for a in range(V)], dtype=torch.float64)
    assert_close(model.probabilities(torch.arange(V)), table)
    assert_close(model.probabilities(4), table[4])
    assert_close(table.sum(-1), torch.ones(V, dtype=torch.float64))


def test_the_full_softmax_loss_is_the_mean_surprise(model: SkipGram) -> None:
    center, context = torch.randint(V, (2, PAIRS))
    surprises = [-math.log(probability(model, b, a)) for a, b in zip(center, context, strict=True)]
    assert_close(model.full_softmax_loss(center, context).item(), sum(surprises) / PAIRS)


def test_negative_sampling_tells_the_true_word_from_noise(model: SkipGram) -> None:
    center, context = torch.randint(V, (2, PAIRS))
    negatives = torch.randint(V, (PAIRS, K))
    losses = []
    for a, b, noise in zip(center, context, negatives, strict=True):
        true = math.log(sigmoid(dot(model, a, b)))
        losses.append(-true - sum(math.log(sigmoid(-dot(model, a, n))) for n in noise))
    assert_close(model.negative_sampling_loss(center, context, negatives).item(), sum(losses) / PAIRS)


def test_no_noise_leaves_the_true_word_alone(model: SkipGram) -> None:
    center, context = torch.randint(V, (2, PAIRS))
    none = torch.empty(PAIRS, 0, dtype=torch.long)
    true = [-math.log(sigmoid(dot(model, a, b))) for a, b in zip(center, context, strict=True)]
    assert_close(model.negative_sampling_loss(center, context, none).item(), sum(true) / PAIRS)


def test_both_tables_learn_and_only_the_rows_that_were_used(model: SkipGram) -> None:
    model.negative_sampling_loss(torch.tensor([1]), torch.tensor([2]), torch.tensor([[3, 5]])).backward()
    moved = [table.weight.grad.abs().sum(-1).nonzero().flatten().tolist() for table in (model.center, model.context)]
    assert moved == [[1], [2, 3, 5]]


def test_a_new_model_expects_every_word_alike() -> None:
    torch.manual_seed(0)
    model = SkipGram(V, D)
    assert_close(model.probabilities(3), torch.full((V,), 1 / V))
    assert model.vectors.shape == (V, D)
    assert 0 < model.vectors.abs().max() <= 0.5 / D


@pytest.mark.parametrize("method", ["full softmax", "negative sampling"])
def test_who_stands_beside_whom_is_learned_by_heart(method: str) -> None:
    torch.manual_seed(0)
    model, center = SkipGram(V, D), torch.arange(V)
    context = (center * 4 + 1) % V
    negatives = torch.stack([(context + shift) % V for shift in range(1, V)], dim=1)  # all the others
    losses = {
        "full softmax": lambda: model.full_softmax_loss(center, context),
        "negative sampling": lambda: model.negative_sampling_loss(center, context, negatives),
    }
    assert memorise(model, losses[method], learning_rate=0.1) < 0.1
    assert model(center).argmax(-1).equal(context)
