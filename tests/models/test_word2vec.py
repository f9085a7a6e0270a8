"""Skip-gram against the lecture's equation and a slow sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.errors import ConfigError, ShapeError, TextError
from clearhead.models.word2vec import SkipGram, analogy, neighbours

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


# --- neighbours and analogies on vectors made by hand ---


# royal, male, female, capital, country, French, Italian
WORDS = ["king", "man", "woman", "queen", "paris", "france", "italy", "rome", "bread"]
VECTORS = np.array(
    [
        [2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.1, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.1, 1.0, 0.0, 0.0, 0.0, 0.0],
        [2.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 3.0, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 3.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 1.0],
        [0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 1.0],
        [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1],
    ]
)
both_measures = pytest.mark.parametrize("measure", ["cosine", "dot"])
both_kinds = pytest.mark.parametrize("vectors", [VECTORS, torch.nn.Parameter(torch.tensor(VECTORS))], ids=type)


@both_measures
@both_kinds
@pytest.mark.parametrize(
    ("a", "b", "c", "answer"), [("king", "man", "woman", "queen"), ("paris", "france", "italy", "rome")]
)
def test_the_lectures_analogies(vectors, measure: str, a: str, b: str, c: str, answer: str) -> None:
    found = analogy(vectors, WORDS, a, b, c, measure=measure)
    assert found[0][0] == answer
    assert {a, b, c}.isdisjoint(word for word, _ in found)
    assert len(found) == len(WORDS) - 3


def test_an_analogy_by_hand() -> None:
    vectors = [[3.0, 4.0], [0.0, 2.0], [5.0, 0.0], [1.0, 1.0], [-1.0, 0.0]]
    words = ["a", "b", "c", "d", "e"]
    found = analogy(vectors, words, "a", "b", "c", measure="dot")  # (3, 4) - (0, 2) + (5, 0) = (8, 2)
    assert found == [("d", 10.0), ("e", -8.0)]
    wanted = np.array([0.6, 0.8]) - [0.0, 1.0] + [1.0, 0.0]  # the same with vectors of length 1: (1.6, -0.2)
    cosine = wanted @ [1.0, 1.0] / (np.linalg.norm(wanted) * np.sqrt(2))
    assert analogy(vectors, words, "a", "b", "c", count=1) == [("d", pytest.approx(cosine))]


@both_kinds
def test_neighbours_by_both_measures(vectors) -> None:
    near = neighbours(vectors, WORDS, "king", count=2)
    assert near == [("queen", pytest.approx(4 / 5)), ("bread", pytest.approx(0.3 / np.sqrt(5 * 0.07)))]
    assert neighbours(vectors, WORDS, "king", count=2, measure="dot") == [("queen", 4.0), ("man", 1.0)]


def test_length_counts_for_the_dot_product_alone() -> None:
    vectors, words = [[1.0, 0.0], [2.0, 0.1], [9.0, 9.0]], ["a", "near", "long"]
    assert [word for word, _ in neighbours(vectors, words, "a")] == ["near", "long"]
    assert [word for word, _ in neighbours(vectors, words, "a", measure="dot")] == ["long", "near"]


@both_measures
def test_a_vector_of_zeros_is_near_nothing(measure: str) -> None:
    found = neighbours([[0.0, 0.0], [1.0, 2.0]], ["nothing", "something"], "nothing", measure=measure)
    assert found == [("something", 0.0)]


def test_an_unknown_word_is_named_with_its_nearest() -> None:
    with pytest.raises(TextError, match=r"^'quean' is not among the 9 words of this model; did you mean queen\?$"):
        neighbours(VECTORS, WORDS, "quean")
    with pytest.raises(TextError, match=r"^'xyzzy' is not among the 9 words of this model$"):
        analogy(VECTORS, WORDS, "king", "man", "xyzzy")


def test_an_unknown_measure_and_vectors_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"unknown measure cosin; did you mean cosine\?"):
        neighbours(VECTORS, WORDS, "king", measure="cosin")
    with pytest.raises(ShapeError, match=r"8 words do not fit vectors of shape \(9, 7\)"):
        neighbours(VECTORS, WORDS[:-1], "king")
