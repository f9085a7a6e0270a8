from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.nn import Fused, MultiHeadAttention

Prepare = Callable[[nn.Module], nn.Module]


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Everything is built and computed in float64, and random in the same way each time."""
    torch.manual_seed(0)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


class Unrounded:
    """What some models are given for `torch`: they round norms, weights and angles to float32, whatever they are in."""

    float = float32 = torch.float64
    FloatTensor = torch.DoubleTensor

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Imported by the first test that needs it, since that takes seconds."""
    import transformers

    for family in ("llama", "marian", "t5", "vit"):
        monkeypatch.setattr(f"transformers.models.{family}.modeling_{family}.torch", Unrounded())
    return transformers


@pytest.fixture(params=["eager", "sdpa"])
def written(request: pytest.FixtureRequest) -> str:
    """How transformers writes attention."""
    return request.param


@pytest.fixture(params=["fused", "explicit"])
def kernel(request: pytest.FixtureRequest) -> Prepare:
    """How we write attention: as torch's fused kernel, or as the equation."""
    return {"fused": stay_fused, "explicit": write_out}[request.param]


def stay_fused(module: nn.Module) -> nn.Module:
    assert all(isinstance(attention.kernel, Fused) for attention in attentions(module))
    return module


def write_out(module: nn.Module) -> nn.Module:
    for attention in attentions(module):
        attention.kernel = attention.kernel.explicit()
    return module


def attentions(module: nn.Module) -> list[MultiHeadAttention]:
    return [part for part in module.modules() if isinstance(part, MultiHeadAttention)]
