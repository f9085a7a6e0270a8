"""Dropout: the share, the mean, and the same draws from the same seed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from clearhead.nn import BatchNorm, LayerNorm, RMSNorm, layer_norm, rms_norm
from clearhead.nn.norm import Dropout


def randomised(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm.double()


def test_layer_norm_is_its_equation():
    norm = randomised(LayerNorm(7))
    z = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    assert_close(norm(z), layer_norm(z, norm.weight, norm.bias))
    assert_close(LayerNorm(7, eps=0.1).double()(z), layer_norm(z, torch.ones(7), torch.zeros(7), eps=0.1))


def test_layer_norm_of_a_constant_vector_is_the_shift():
    shift = torch.randn(5)
    assert_close(layer_norm(torch.full((3, 5), 7.0), torch.ones(5), shift), shift.expand(3, 5))


def test_rms_norm_is_its_equation():
    norm = randomised(RMSNorm(7, eps=1e-5))
    z = torch.randn(2, 5, 7, dtype=torch.float64)
    assert_close(norm(z), rms_norm(z, norm.weight))
    by_hand = norm.weight * z[1, 2] / torch.sqrt(sum(z_i**2 for z_i in z[1, 2]) / 7 + 1e-5)
    assert_close(norm(z)[1, 2], by_hand)


def test_batch_norm_normalises_each_feature_over_all_tokens():
    norm = randomised(BatchNorm(3))
    z = 5 + 2 * torch.randn(11, 13, 3, dtype=torch.float64)
    tokens = z.reshape(-1, 3)
    wanted = (tokens - tokens.mean(0)) / torch.sqrt(tokens.var(0, correction=0) + 1e-5)
    assert_close(norm(z), (norm.norm.weight * wanted + norm.norm.bias).view_as(z))


def influence(norm: nn.Module) -> torch.Tensor:
    """How much each token's output moves when the last token of the first row changes: (2, 5)."""
    torch.manual_seed(1)
    z = torch.randn(2, 5, 7)
    changed = z.clone()
    changed[0, -1] += torch.randn(7)
    return (norm(changed) - norm(z)).abs().amax(-1)


def test_tokens_influence_each_other_in_batch_norm_only():
    others = torch.ones(2, 5, dtype=torch.bool)
    others[0, -1] = False
    for norm in (LayerNorm(7), RMSNorm(7)):
        moved = influence(norm)
        assert moved[others].eq(0).all()
        assert moved[0, -1] > 0.1
    assert (influence(BatchNorm(7)) > 1e-3).all()
    assert influence(BatchNorm(7).eval())[others].eq(0).all()  # then it uses what it has measured in training


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
