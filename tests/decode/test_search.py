"""Search against the slow definition: all sequences written out, on models small enough for that."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.decode import beam_search, greedy, sample
from clearhead.decode.sampling import only_top_k, only_top_p

STOP = 0


@dataclass
class Table:
    """A model whose next token depends on the last two; its state is the rows' history."""

    logits: Tensor  # (V, V, V)

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        history = torch.cat((state, ids), dim=1)
        return self.logits[history[:, -2], history[:, -1]].unsqueeze(1), history

    def reorder(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]

    def start(self, rows: int) -> Tensor:
        return torch.ones(rows, 1, dtype=torch.long)

    def score(self, first: int, ids: tuple[int, ...]) -> float:
        history, total = [1, first], 0.0
        for token in (*ids, STOP):
            total += float(self.logits[history[-2], history[-1]].log_softmax(-1)[token])
            history.append(token)
        return total


@pytest.fixture
def model() -> Table:
    torch.manual_seed(3)
    return Table(2 * torch.randn(5, 5, 5))


def exhaustive(model: Table, first: int, longest: int, penalty: float) -> list[tuple[float, list[int]]]:
    """Every sequence that stops within the length, the best first."""
    found = []
    for length in range(longest):
        for ids in itertools.product(range(1, 5), repeat=length):
            found.append((model.score(first, ids) / (length + 1) ** penalty, list(ids)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_a_wide_beam_finds_what_an_exhaustive_search_finds(model: Table, penalty: float) -> None:
    first = torch.tensor([2, 3, 4])
    found = beam_search(model, model.start(3), first, stop=STOP, longest=5, beams=400, penalty=penalty)
    for row, hypotheses in zip(first.tolist(), found, strict=True):
        best = exhaustive(model, row, 5, penalty)[:20]
        assert [hypothesis.ids for hypothesis in hypotheses[:20]] == [ids for _, ids in best]
        for hypothesis, (score, _) in zip(hypotheses, best, strict=False):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)


def test_one_beam_is_greedy(model: Table) -> None:
    first = torch.tensor([1, 2, 3, 4])
    alone = beam_search(model, model.start(4), first, stop=STOP, longest=9, beams=1)
    assert [hypotheses[0].ids for hypotheses in alone] == greedy(model, model.start(4), first, stop=STOP, longest=9)


def test_rows_do_not_depend_on_each_other(model: Table) -> None:
    first = torch.tensor([1, 2, 3, 4])
    together = beam_search(model, model.start(4), first, stop=STOP, longest=9, beams=3)
    for row in range(4):
        alone = beam_search(model, model.start(1), first[row : row + 1], stop=STOP, longest=9, beams=3)
        assert alone[0] == together[row]


def test_a_sentence_that_never_stops_is_cut(model: Table) -> None:
    endless = Table(model.logits.index_fill(2, torch.tensor([STOP]), -math.inf))
    found = beam_search(endless, endless.start(1), torch.tensor([2]), stop=STOP, longest=4, beams=2)
    assert len(found[0][0].ids) == 4
    assert len(greedy(endless, endless.start(1), torch.tensor([2]), stop=STOP, longest=4)[0]) == 4


def test_samples_follow_the_distribution(model: Table) -> None:
    prompt = torch.tensor([[2]])
    draws = [next(sample(model, model.start(1), prompt, longest=1, seed=seed)) for seed in range(3000)]
    wanted = model.logits[1, 2].softmax(-1)
    counted = torch.bincount(torch.tensor(draws), minlength=5) / 3000
    torch.testing.assert_close(counted, wanted, atol=0.03, rtol=0)


def test_the_same_seed_writes_the_same(model: Table) -> None:
    def written(**settings: Any) -> list[int]:
        return list(sample(model, model.start(1), torch.tensor([[2]]), longest=20, **settings))

    assert written(seed=5) == written(seed=5)
    assert written(temperature=0) == written(temperature=0, seed=9)
    assert written(top_k=1, seed=1) == written(temperature=0)
    assert STOP not in written(seed=2, stop=STOP)


def test_top_k_and_top_p_keep_the_likeliest() -> None:
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25]]).log()
    assert only_top_k(logits, 2).isfinite().tolist() == [[False, True, False, True]]
    assert only_top_k(logits, None) is logits
    assert only_top_p(logits, 0.6).isfinite().tolist() == [[False, True, False, True]]
    assert only_top_p(logits, 0.5).isfinite().tolist() == [[False, True, False, False]]
    assert only_top_p(logits, 1.0) is logits
