import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from clearhead.nn import FeedForward, SwiGLU


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def shapes(part) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in part.named_parameters()}


def test_parameters():
    two = {"inner.weight": (13, 5), "outer.weight": (5, 13)}
    assert shapes(FeedForward(5, 13)) == two | {"inner.bias": (13,), "outer.bias": (5,)}
    assert shapes(FeedForward(5, 13, bias=False)) == two
    assert shapes(SwiGLU(5, 13)) == two | {"gate.weight": (13, 5)}
    assert shapes(SwiGLU(5, 13, bias=True)) == shapes(FeedForward(5, 13)) | {"gate.weight": (13, 5), "gate.bias": (13,)}


@pytest.mark.parametrize("make", [FeedForward, SwiGLU])
def test_inner_size_is_four_times_the_width(make):
    assert make(5).inner.out_features == 20


@pytest.mark.parametrize("activation", [F.relu, F.gelu, torch.tanh])
def test_activation_is_a_part(activation):
    part, x = FeedForward(5, 7, activation), torch.randn(2, 3, 5)
    assert_close(part(x), part.outer(activation(part.inner(x))))


def test_swiglu_equation():
    part, x = SwiGLU(5, 7).double(), torch.randn(2, 3, 5, dtype=torch.float64)
    gate = x @ part.gate.weight.T
    hidden = gate * torch.sigmoid(gate) * (x @ part.inner.weight.T)
    assert_close(part(x), hidden @ part.outer.weight.T)


@pytest.mark.parametrize("make", [FeedForward, SwiGLU])
def test_dropout_only_in_training(make):
    part, x = make(5, 31, dropout=0.5), torch.randn(2, 3, 5)
    assert (part(x) - part(x)).abs().max() > 1e-3
    plain = make(5, 31)
    plain.load_state_dict(part.state_dict())
    assert_close(part.eval()(x), plain(x))
