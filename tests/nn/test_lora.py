"""The update of low rank: its equation, its gradients, and the matrix that others read."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn import LoRALinear, MultiHeadAttention, add_lora
from clearhead.nn.lora import base_name, lora_layers, merged_state


def layer(bias: bool = True, dtype: torch.dtype = torch.float64) -> LoRALinear:
    """13 -> 7 by rank 3, with an update that is not zero."""
    torch.manual_seed(3)
    found = LoRALinear(nn.Linear(13, 7, bias=bias, dtype=dtype), rank=3, alpha=5.0)
    nn.init.normal_(found.b)
    return found


def explicit(x: Tensor, part: LoRALinear) -> Tensor:
    return F.linear(x, part.base.weight, part.base.bias) + 5 / 3 * (x @ part.a.T) @ part.b.T


def test_an_update_is_added_to_the_frozen_map() -> None:
    for bias in (True, False):
        part, x = layer(bias), torch.randn(2, 5, 13, dtype=torch.float64)
        torch.testing.assert_close(part(x), explicit(x, part), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(part(x), F.linear(x, part.weight, part.bias), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(part(x[0, 0]), explicit(x[0, 0], part), rtol=1e-12, atol=1e-12)


def test_it_starts_as_its_base() -> None:
    linear, x = nn.Linear(13, 7), torch.randn(2, 5, 13)
    expected = linear(x).detach()
    assert torch.equal(LoRALinear(linear, rank=3, alpha=5.0)(x), expected)


def test_gradients_are_those_of_the_equation() -> None:
    part, x = layer(), torch.randn(2, 5, 13, dtype=torch.float64, requires_grad=True)
    parts = (x, part.a, part.b)
    upstream = torch.randn(2, 7, 5, dtype=torch.float64).transpose(1, 2)  # not contiguous
    found = torch.autograd.grad(part(x), parts, upstream)
    wanted = torch.autograd.grad(explicit(x, part), parts, upstream)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(part, x)


def test_the_base_has_no_gradient_and_an_input_without_one_gets_none() -> None:
    part, x = layer(), torch.randn(2, 5, 13, dtype=torch.float64)
    part(x).sum().backward()
    assert part.base.weight.grad is None
    assert part.base.bias.grad is None
    assert x.grad is None
    assert part.a.grad is not None
    assert part.b.grad is not None


def test_half_precision_keeps_a_small_update() -> None:
    part, x = layer(dtype=torch.float32), torch.randn(2, 5, 13, requires_grad=True)
    with torch.no_grad():
        part.b.mul_(1e-4)
        part.base.weight.fill_(1.0)
    with torch.autocast("cpu", torch.bfloat16):
        y = part(x)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert part.a.grad is not None
    assert part.b.grad is not None
    assert x.grad is not None
    assert (part.a.grad.dtype, part.b.grad.dtype, x.grad.dtype) == (torch.float32,) * 3
    low = (x.bfloat16() @ part.a.T.bfloat16()).flatten(0, 1).float()
    torch.testing.assert_close(part.b.grad, 5 / 3 * low.sum(0).expand(7, 3), rtol=2e-2, atol=2e-2)


def test_an_adapted_model_is_the_model_with_the_sums() -> None:
    torch.manual_seed(5)
    model = nn.ModuleDict({"first": MultiHeadAttention(22, 2), "second": MultiHeadAttention(22, 2, bias=False)})
    plain = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    add_lora(model, ["first.query", "second.output"], rank=3, alpha=7.0)
    for _, part in lora_layers(model):
        nn.init.normal_(part.b)
    merged = merged_state(model)
    assert merged.keys() == plain.keys()
    changed = {name for name in plain if not torch.equal(plain[name], merged[name])}
    assert changed == {"first.query.weight", "second.output.weight"}
    x = torch.randn(2, 5, 22)
    expected = model["second"](model["first"](x))
    other = nn.ModuleDict({"first": MultiHeadAttention(22, 2), "second": MultiHeadAttention(22, 2, bias=False)})
    other.load_state_dict(merged)
    torch.testing.assert_close(other["second"](other["first"](x)), expected, rtol=1e-5, atol=1e-6)


def test_names_of_the_base_are_those_without_adapters() -> None:
    layers = {"stack.query"}
    assert base_name("stack.query.base.weight", layers) == "stack.query.weight"
    assert base_name("stack.query.base.bias", layers) == "stack.query.bias"
    assert base_name("stack.key.weight", layers) == "stack.key.weight"
