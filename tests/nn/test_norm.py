import torch
from torch import nn
from torch.testing import assert_close

from clearhead.nn import BatchNorm, LayerNorm, RMSNorm, layer_norm, rms_norm


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
