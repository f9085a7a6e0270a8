"""The linear model of n-grams beside a classifier."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.nn import SequenceOutput, WideOutput
from clearhead.nn.embedding import hashed_ngrams
from clearhead.nn.wide import (
    FACTORS,
    LONGEST,
    STRENGTHS,
    TEMPERATURES,
    NgramCounts,
    best_mixture,
    linear_logits,
    mixture_losses,
    ridge_regression,
    solve_tables,
)

ROWS, C = 101, 3


def some_texts(count: int, seed: int = 0, longest: int = 11) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=draw).tolist()
    return [torch.randint(2, 29, (length,), generator=draw).tolist() for length in lengths]


def dense(texts: list[list[int]], rows: int) -> torch.Tensor:
    """X (N, R), counted one n-gram after the other."""
    found = torch.zeros(len(texts), rows, dtype=torch.float64)
    for x, text in zip(found, texts, strict=True):
        for numbers in hashed_ngrams(torch.tensor([text]), LONGEST, rows):
            for number in numbers[0].tolist():
                x[number] += len(text) ** -0.5
    return found


@given(st.integers(1, 41), st.integers(0, 5), st.sampled_from([7, 101, 1009]))
@settings(max_examples=25, deadline=None)
def test_counts_multiply_as_the_matrix_they_stand_for(count: int, seed: int, rows: int) -> None:
    texts = some_texts(count, seed)
    counts, matrix = NgramCounts.of(texts, rows), dense(texts, rows)
    table, values = torch.randn(rows, C), torch.randn(count, C)
    assert_close(counts.times(table).double(), matrix @ table.double(), atol=1e-5, rtol=1e-5)
    assert_close(counts.transposed_times(values).double(), matrix.T @ values.double(), atol=1e-5, rtol=1e-5)


def test_texts_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = some_texts(17)
    whole = NgramCounts.of(texts, ROWS)
    monkeypatch.setattr("clearhead.nn.wide.TEXTS", 5)
    assert torch.equal(NgramCounts.of(texts, ROWS).rows, whole.rows)


def test_the_regression_solves_its_equation() -> None:
    texts, right = some_texts(37), torch.randn(37, C)
    found = ridge_regression(NgramCounts.of(texts, ROWS), right, 0.3)
    x = dense(texts, ROWS)
    wanted = x.T @ torch.linalg.solve(x @ x.T + 0.3 * torch.eye(37), right.double())
    assert_close(found.double(), wanted, atol=1e-4, rtol=1e-4)


def test_a_text_has_the_logits_of_its_counts_and_padding_adds_nothing() -> None:
    table, texts = torch.randn(ROWS, C), [[5, 6, 4, 9, 9], [7, 9]]
    ids = torch.tensor([texts[0], [*texts[1], 0, 0, 0]])
    found = linear_logits(table, ids != 0, ids)
    assert_close(found.double(), dense(texts, ROWS) @ table.double(), atol=1e-5, rtol=1e-5)


def test_it_learns_what_words_and_pairs_say() -> None:
    texts = [[5, 6, 3 + label] if number % 2 else [7 + label, 9] for number in range(60) for label in (0, 1)]
    tables = solve_tables(texts, torch.tensor([0, 1] * 60), ROWS, 2)
    ids = torch.tensor([[5, 6, 4], [7, 9, 0]])
    assert [linear_logits(each, ids > 0, ids).argmax(-1).tolist() for each in tables] == [[1, 0]] * len(STRENGTHS)


def test_the_logits_are_added_in_evaluation_only() -> None:
    part, plain = WideOutput(5, C, rows=ROWS), SequenceOutput(5, C)
    plain.linear = part.linear
    part.table.normal_()
    ids, x = torch.tensor([[5, 6, 4], [7, 9, 0]]), torch.randn(2, 3, 5)
    real = ids > 0
    assert torch.equal(part(x, real, ids), plain(x, real))
    assert_close(part.eval()(x, real, ids), plain(x, real) + linear_logits(part.table, real, ids))


def test_the_losses_are_those_of_every_mixture() -> None:
    network, linear, labels = torch.randn(7, C), torch.randn(7, C), torch.randint(C, (7,))
    found = mixture_losses(network, linear, labels, 0.3)
    assert found.shape == (len(FACTORS), len(TEMPERATURES))
    for i, factor in enumerate(FACTORS):
        for j, temperature in enumerate(TEMPERATURES):
            mixed = (network + factor * linear) / temperature
            wanted = F.cross_entropy(mixed, labels, reduction="sum", label_smoothing=0.3)
            assert_close(found[i, j], wanted)
    found[3, 2] = -1.0
    assert best_mixture(torch.stack([found.abs() + 1, found])) == (1, 2.0, 1.0)


def test_a_linear_model_that_knows_nothing_is_not_asked() -> None:
    labels = torch.randint(C, (997,))
    network = 3.0 * F.one_hot(labels, C) + torch.randn(997, C)
    _, factor, _ = best_mixture(mixture_losses(network, torch.randn(997, C), labels, 0.0).unsqueeze(0))
    assert factor == 0


def test_a_few_texts_that_are_all_right_do_not_make_it_certain() -> None:
    labels = torch.tensor([0, 1, 1])
    logits = 20.0 * F.one_hot(labels, 2)
    found = best_mixture(mixture_losses(logits, logits, labels, 2 / 5).unsqueeze(0))
    assert found == (0, 0.0, TEMPERATURES[-1])
