from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from clearhead.errors import RunError
from clearhead.train.ema import EMA


def network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 5))
    model[2].weight = nn.Parameter(torch.randn(5, 5))
    model.register_buffer("scratch", torch.ones(7), persistent=False)
    return model


def stepped(model: nn.Sequential, average: EMA, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn(parameter.shape, generator=generator)
        model(torch.randn(11, 3, generator=generator).to(model[0].weight.dtype))  # moves what batch norm has measured
        average.update(step)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(value, right[name]) for name, value in left.items())


def test_it_follows_its_equation_and_forgets_the_start():
    model = network().double()
    average, by_hand = EMA(model, 0.5), snapshot(model)
    for step in range(8):
        stepped(model, average, range(step, step + 1))
        decay = min(0.5, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            floating = value.is_floating_point()
            by_hand[name] = decay * by_hand[name] + (1 - decay) * value if floating else value.clone()
    assert by_hand["1.num_batches_tracked"] == 8
    with average.applied():
        for name, value in model.state_dict().items():
            assert_close(value, by_hand[name])


@given(st.floats(0, 0.999), st.integers(1, 7))
def test_constant_weights_equal_their_average(decay, steps):
    model = network()
    average, before = EMA(model, decay), snapshot(model)
    for step in range(steps):
        average.update(step)
    with average.applied():
        for name, value in model.state_dict().items():
            assert_close(value, before[name])


def test_with_decay_zero_it_is_the_last_weights_and_keeps_nothing():
    model = network()
    average = EMA(model, 0.0)
    stepped(model, average, range(3))
    last = snapshot(model)
    with average.applied():
        assert same(snapshot(model), last)
    assert average.state_dict() == {}
    average.load_state_dict({})


def test_with_a_decay_next_to_zero_it_is_nearly_the_last_weights():
    model = network()
    average = EMA(model, 1e-9)
    stepped(model, average, range(3))
    last = snapshot(model)
    with average.applied():
        for name, value in model.state_dict().items():
            assert_close(value, last[name])


def test_the_model_gets_its_weights_back_even_after_an_error():
    model = network()
    average = EMA(model, 0.9)
    stepped(model, average, range(3))
    own = snapshot(model)
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    with average.applied():
        assert not same(snapshot(model), own)
    assert same(snapshot(model), own)
    with pytest.raises(ZeroDivisionError), average.applied():
        raise ZeroDivisionError
    assert same(snapshot(model), own)
    assert [parameter.data_ptr() for parameter in model.parameters()] == pointers


def test_saved_and_restored_it_continues_bit_for_bit():
    model = network()
    average = EMA(model, 0.97)
    stepped(model, average, range(3))
    weights, tensors = snapshot(model), {name: value.clone() for name, value in average.state_dict().items()}
    stepped(model, average, range(3, 6))

    other = network()
    again = EMA(other, 0.97)
    stepped(other, again, range(50, 52))
    other.load_state_dict(weights)
    again.load_state_dict(tensors)
    assert same(again.state_dict(), tensors)
    stepped(other, again, range(3, 6))
    assert same(again.state_dict(), average.state_dict())
    assert tensors.keys() == model.state_dict().keys()


def test_a_tied_weight_is_averaged_once():
    model = nn.ModuleDict({"tokens": nn.Embedding(7, 3), "output": nn.Linear(3, 7, bias=False)})
    model["output"].weight = model["tokens"].weight
    average = EMA(model, 0.5)
    assert average.state_dict().keys() == {"tokens.weight"}
    with torch.no_grad():
        model["tokens"].weight += 1
    before = average.state_dict()["tokens.weight"].clone()
    average.update(0)
    assert_close(average.state_dict()["tokens.weight"], before + 0.9)


def test_the_average_of_another_model_is_refused():
    average = EMA(network(), 0.5)
    tensors = average.state_dict()
    with pytest.raises(RunError, match=r"of another model: they differ in 0\.bias, extra"):
        average.load_state_dict(
            {"extra": torch.ones(1), **{name: tensors[name] for name in tensors if name != "0.bias"}}
        )
    with pytest.raises(RunError, match=r"0\.bias of shape \(3,\) where \(5,\) is expected"):
        average.load_state_dict({**tensors, "0.bias": torch.ones(3)})
