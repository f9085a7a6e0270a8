"""Dropout: the share, the mean, and the same draws from the same seed."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from clearhead.nn.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.37, 0.5, 0.9])
def test_the_share_that_is_dropped_is_p_and_the_rest_grows(p: float) -> None:
    torch.manual_seed(3)
    x = torch.ones(101, 1009)
    y = Dropout(p)(x)
    share = (y == 0).double().mean().item()
    assert share == pytest.approx(p, abs=4 * (p * (1 - p) / x.numel()) ** 0.5)
    assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - p)), rtol=2e-4, atol=0)


def test_every_one_of_the_four_numbers_of_a_word_is_dropped_as_often() -> None:
    torch.manual_seed(5)
    dropped = (Dropout(0.3)(torch.ones(4 * 50_021)) == 0).view(-1, 4).double()
    assert_close(dropped.mean(0), torch.full((4,), 0.3).double(), rtol=0, atol=0.01)
    together = torch.corrcoef(dropped.T) - torch.eye(4)
    assert together.abs().max() < 0.02


@pytest.mark.parametrize("shape", [(), (1,), (5, 0, 3), (3, 7), (2, 3, 5, 7)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    assert Dropout(0.4)(x).shape == x.shape


def test_the_gradient_passes_where_the_number_did() -> None:
    x = torch.randn(11, 13, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.25)(x)
    y.sum().backward()
    assert x.grad is not None
    assert_close(x.grad, (y / x).detach())


def test_the_same_seed_drops_the_same_numbers() -> None:
    x, dropout = torch.randn(17, 19), Dropout(0.2)
    torch.manual_seed(7)
    first = dropout(x)
    torch.manual_seed(7)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(dropout(x), first)


def test_nothing_happens_outside_of_training_or_with_zero() -> None:
    x = torch.randn(3, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_everything_can_be_dropped() -> None:
    assert torch.equal(Dropout(1.0)(torch.randn(3, 5)), torch.zeros(3, 5))
