"""Beam search against slow references: enumeration of all texts, and a plain search without tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.decode import Hypothesis, Prompts, Settings, beam_search, generate
from clearhead.errors import ConfigError

from .tables import STOP, Found, Table, exhaustive, plain_beam_search, table

ROWS = [[2], [3, 4, 1], [4, 2], [1]]


def found_by(model: Table, rows: list[list[int]], **settings) -> list[list[Hypothesis]]:
    return beam_search(model, model.start(len(rows)), Prompts(rows, STOP), Settings(**settings))


def assert_same(found: list[Hypothesis], wanted: list[Found]) -> None:
    assert [tuple(each.ids) for each in found] == [each.ids for each in wanted]
    assert [each.finished for each in found] == [each.finished for each in wanted]
    assert [each.score for each in found] == pytest.approx([each.score for each in wanted], abs=1e-12)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("n_best", [1, 7, 341])
def test_a_wide_beam_finds_what_an_exhaustive_search_finds(penalty: float, n_best: int) -> None:
    model, longest = table(), 4
    settings = {"max_tokens": longest, "beam_width": 5**4, "n_best": n_best, "length_penalty": penalty}
    for row, hypotheses in zip(ROWS, found_by(model, ROWS, **settings), strict=True):
        assert_same(hypotheses, exhaustive(model, tuple(row), longest, penalty)[:n_best])


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("no_repeat", [0, 2])
@pytest.mark.parametrize(
    ("beams", "groups", "diversity"), [(3, 1, 0.0), (7, 1, 0.0), (6, 3, 0.9), (4, 4, 2.5), (4, 2, 0.0)]
)
def test_a_narrow_beam_finds_what_a_plain_search_finds(penalty, no_repeat, beams, groups, diversity) -> None:
    for seed in range(3):
        model = table(seed)
        shared = {
            "beam_width": beams,
            "beam_groups": groups,
            "diversity_penalty": diversity,
            "no_repeat_ngram": no_repeat,
        }
        for n_best in (1, beams):
            found = found_by(model, ROWS, max_tokens=7, n_best=n_best, length_penalty=penalty, **shared)
            for row, hypotheses in zip(ROWS, found, strict=True):
                assert_same(
                    hypotheses,
                    plain_beam_search(model, tuple(row), 7, penalty, beams, groups, diversity, no_repeat)[:n_best],
                )


@dataclass
class Looking:
    """A table that looks at a source while it reads, each token in its own way; it knows how long each source is."""

    table: Table
    looks: Tensor  # (V, S)

    def step(self, ids: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        logits, history = self.table.step(ids, state[0])
        return logits, (history, state[1])

    def step_with_attention(self, ids: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        padding = torch.arange(self.looks.size(1)) >= state[1].view(-1, 1, 1)  # (B, 1, S)
        weights = self.looks[ids].masked_fill(padding, -torch.inf).softmax(-1).masked_fill(padding, 1.0)
        logits, state = self.step(ids, state)
        return logits, weights, state

    def reorder(self, state: tuple[Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.table.reorder(state[0], rows), state[1][rows]

    def covered(self, ids: tuple[int, ...], length: int, weight: float) -> float:
        """The slow definition: β Σ_i log min(1, Σ_j p_ij)."""
        weights = [self.looks[token, :length].softmax(-1).tolist() for token in ids]
        return weight * sum(math.log(min(1.0, sum(each[i] for each in weights))) for i in range(length))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("n_best", [1, 4])
def test_a_coverage_penalty_prefers_full_attention(seed: int, penalty: float, n_best: int) -> None:
    model = Looking(table(seed), 3 * torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)).double())
    lengths, how = [7, 2, 5, 3], {"beam_width": 4, "n_best": n_best, "length_penalty": penalty, "max_tokens": 6}

    def found(**coverage: float) -> list[list[Hypothesis]]:
        state = model.table.start(4), torch.tensor(lengths)
        return beam_search(model, state, Prompts(ROWS, STOP), Settings(**how, **coverage))

    assert found(coverage_penalty=0.4) != found()
    for row, length, hypotheses in zip(ROWS, lengths, found(coverage_penalty=0.4), strict=True):
        covered = partial(model.covered, length=length, weight=0.4)
        wanted = plain_beam_search(model.table, tuple(row), 6, penalty, 4, covered=covered)
        assert_same(hypotheses, wanted[:n_best])


def test_a_coverage_penalty_needs_attention() -> None:
    with pytest.raises(ConfigError, match=r"^coverage_penalty needs a model that returns its attention to a source; "):
        found_by(table(), ROWS, beam_width=2, coverage_penalty=0.2)


def test_groups_differ_more_with_diversity() -> None:
    def different(diversity: float) -> int:
        found = found_by(
            table(1), ROWS, max_tokens=5, beam_width=4, n_best=4, beam_groups=4, diversity_penalty=diversity
        )
        return sum(len({tuple(each.ids[:1]) for each in hypotheses}) for hypotheses in found)

    assert different(50.0) > different(0.0)


def test_a_score_is_the_sum_of_the_log_probabilities() -> None:
    model = table()
    for row, hypotheses in zip(
        ROWS, found_by(model, ROWS, max_tokens=6, beam_width=5, n_best=5, length_penalty=0.7), strict=True
    ):
        for each in hypotheses:
            written = (*each.ids, STOP) if each.finished else tuple(each.ids)
            assert each.logprobs == pytest.approx(model.gains(tuple(row), written), abs=1e-12)
            assert each.score == pytest.approx(sum(each.logprobs) / len(written) ** 0.7, abs=1e-12)


def test_rows_do_not_depend_on_each_other() -> None:
    model = table()
    together = found_by(model, ROWS, max_tokens=9, beam_width=3, n_best=3)
    alone = [found_by(model, [row], max_tokens=9, beam_width=3, n_best=3)[0] for row in ROWS]
    assert together == alone


def test_each_row_has_its_own_limit() -> None:
    model, limits = table(), [5, 0, 2, 7]
    settings = Settings(beam_width=3, n_best=3)
    together = beam_search(model, model.start(4), Prompts(ROWS, STOP, limits), settings)
    for row, limit, hypotheses in zip(ROWS, limits, together, strict=True):
        assert [hypotheses] == beam_search(model, model.start(1), Prompts([row], STOP, [limit]), settings)
    assert together[1] == [Hypothesis([], 0.0)]


def test_prefix_tokens_begin_every_hypothesis_and_are_scored() -> None:
    model, forced = table(), (3, 3)
    for row, hypotheses in zip(
        ROWS, found_by(model, ROWS, max_tokens=6, beam_width=3, n_best=3, prefix_tokens=forced), strict=True
    ):
        plain = plain_beam_search(model, (*row, *forced), 4, 0.0, 3)
        assert {tuple(each.ids) for each in hypotheses} <= {forced + each.ids for each in plain}
        for each in hypotheses:
            assert tuple(each.ids[:2]) == forced
            assert each.logprobs[:2] == pytest.approx(model.gains(tuple(row), forced), abs=1e-12)
            assert each.score == pytest.approx(sum(each.logprobs) / len(each.logprobs), abs=1e-12)


def test_a_text_that_never_stops_is_cut() -> None:
    endless = Table(table().logits.index_fill(2, torch.tensor([STOP]), -math.inf))
    (hypotheses,) = found_by(endless, [[2]], max_tokens=4, beam_width=2, n_best=2)
    assert [len(each.ids) for each in hypotheses] == [4, 4]
    assert not any(each.finished for each in hypotheses)


def test_without_a_stop_token_all_are_cut() -> None:
    model = table()
    (hypotheses,) = beam_search(model, model.start(1), Prompts([[2]]), Settings(max_tokens=5, beam_width=3, n_best=3))
    assert [len(each.ids) for each in hypotheses] == [5, 5, 5]


def test_fewer_hypotheses_than_n_best() -> None:
    only_stop = Table(torch.full((5, 5, 5), -math.inf).index_fill(2, torch.tensor([STOP]), 0.0))
    (hypotheses,) = found_by(only_stop, [[2]], max_tokens=9, beam_width=3, n_best=3)
    assert hypotheses == [Hypothesis([], 0.0, (0.0,))]


def test_rows_that_stay_are_not_copied() -> None:
    model = table()  # in groups of one beam, each goes on in its own row: only the first step makes two rows of one
    beam_search(model, model.start(1), Prompts([[2]]), Settings(max_tokens=8, beam_width=2, beam_groups=2))
    assert model.moves == 1


def test_one_beam_is_greedy() -> None:
    model = table()
    searched = found_by(model, ROWS, max_tokens=9, beam_width=1)
    assert searched == generate(
        model, model.start(4), Prompts(ROWS, STOP), Settings(max_tokens=9, return_logprobs=True)
    )


def test_no_prompts_give_nothing() -> None:
    assert found_by(table(), [], max_tokens=3, beam_width=2) == []
