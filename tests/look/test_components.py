from __future__ import annotations

import pytest
import torch

from clearhead.errors import ShapeError
from clearhead.look.views.patches import principal_components

N, D = 11, 5


def test_components_are_the_eigenvectors_of_the_covariance() -> None:
    torch.manual_seed(2)
    vectors = torch.randn(N, D, dtype=torch.float64) * torch.tensor([5.0, 1, 3, 0.5, 2]) + 7
    found = principal_components(vectors, 3)
    values, columns = torch.linalg.eigh(torch.cov(vectors.T))
    for place in range(3):
        direction = columns[:, -1 - place]
        assert abs(float(found.directions[place] @ direction)) == pytest.approx(1)
        assert float(found.directions[place][found.directions[place].abs().argmax()]) > 0
    torch.testing.assert_close(found.shares, values.flip(0)[:3] / values.sum())
    torch.testing.assert_close(found.project(vectors), (vectors - vectors.mean(0)) @ found.directions.T)


def test_all_components_lose_nothing() -> None:
    torch.manual_seed(3)
    vectors = torch.randn(N, D, dtype=torch.float64)
    found = principal_components(vectors, D)
    torch.testing.assert_close(found.project(vectors) @ found.directions + found.mean, vectors)
    torch.testing.assert_close(found.shares.sum(), torch.ones((), dtype=torch.float64))


def test_vectors_that_are_all_alike_have_no_spread_to_share() -> None:
    assert principal_components(torch.ones(N, D), 2).shares.tolist() == [0, 0]


@pytest.mark.parametrize("count", [0, 6])
def test_more_components_than_there_are_is_one_sentence(count: int) -> None:
    with pytest.raises(ShapeError, match=rf"{count} principal components of \(11, 5\) numbers; choose from 1 to 5"):
        principal_components(torch.ones(N, D), count)
