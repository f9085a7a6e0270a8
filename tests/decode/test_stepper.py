"""The largest logits by spans equal topk."""

from __future__ import annotations

import pytest
import torch

from clearhead.decode.stepper import SPAN, largest, rank


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [37, 5003, 79 * SPAN])
@pytest.mark.parametrize("rows", [7, 11])
def test_the_largest_by_spans_are_the_largest(rows: int, size: int, count: int) -> None:
    logits = torch.randperm(rows * size, generator=torch.Generator().manual_seed(count)).view(rows, size).float()
    logits[3, -1] = logits.max() + 1  # in what is left over behind the last whole span
    logits[5, : 2 * SPAN] = -torch.inf
    for found, expected in zip(largest(logits, count), logits.topk(count), strict=True):
        assert torch.equal(found, expected)


def test_a_row_with_one_possible_token_names_it_first() -> None:
    logits = torch.full((3, 5003), -torch.inf)
    logits[0, 4999], logits[1, 0], logits[2, 2500] = -4.0, 2.0, 0.0
    values, tokens = largest(logits, 5)
    assert tokens[:, 0].tolist() == [4999, 0, 2500]
    assert values[:, 0].tolist() == [-4.0, 2.0, 0.0]
    assert values[:, 1:].isinf().all()


def test_the_total_is_that_of_all_logits() -> None:
    logits = 50 * torch.randn(5, 3001, generator=torch.Generator().manual_seed(1))
    logits[2, 7:] = -torch.inf
    *_, total = rank(logits, 3)
    torch.testing.assert_close(total, logits.logsumexp(-1))
