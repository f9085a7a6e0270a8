"""Neighbours and analogies on vectors made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clearhead.errors import ConfigError, ShapeError, TextError
from clearhead.models.word_vectors import analogy, neighbours

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
