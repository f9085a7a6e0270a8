"""Feed-forward: the same small network for every token; it mixes within a token what attention mixed between tokens.

    FFN(x)   = φ(x W_1 + b_1) W_2 + b_2           φ = ReLU, GELU or swish
    Gated(x) = (φ(x W_g) · x W_1) W_2             SwiGLU with swish, GeGLU with GELU

It is wider inside than outside: `inner` defaults to 4 × dim.

A feed-forward network is made by a callable (dim, inner, *, bias, dropout). Registered, it is a value of
`model.feed_forward`; `outer` must be its last matrix, whose input is what `look` calls `feed_forward.inner`:

    @FEED_FORWARDS.register("mine")
    class Mine(FeedForwardLayer):
        equation = "…"
        def __init__(self, dim, inner=None, *, bias=True, dropout=0.0): ...
        def forward(self, x): ...                              # (…, D) -> (…, D)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn.norm import Dropout
from clearhead.registry import Registry

Activation = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its approximation with tanh, as GPT-2, Gemma and BLOOM were trained: they differ in the third digit."""
    return F.gelu(x, approximate="tanh")


def quick_gelu(x: Tensor) -> Tensor:
    """x σ(1.702 x): GELU by its approximation with a sigmoid."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
NATIVE = {activation: name for name, activation in ACTIVATIONS.items() if name != "tanh"}


@dataclass(frozen=True)
class FeedForwardForm:
    """What native code needs to know: outer(φ(inner(x))), or outer(φ(gate(x)) · inner(x))."""

    activation: str  # a name of `NATIVE`
    inner: nn.Linear
    outer: nn.Linear
    gate: nn.Linear | None = None


class FeedForwardLayer(nn.Module):
    """The base of feed-forward networks."""

    equation: ClassVar[str] = "FFN(y)"
    outer: nn.Linear  # what it writes with

    def native_form(self) -> FeedForwardForm | None:
        """What an engine without torch computes; None: it cannot."""
        return None


class MakeFeedForward(Protocol):
    """What `FEED_FORWARDS` holds: a class, or any callable with these arguments."""

    def __call__(self, dim: int, inner: int | None = None, *, bias: bool, dropout: float) -> FeedForwardLayer: ...


FEED_FORWARDS: Registry[MakeFeedForward] = Registry("feed_forward")


class FeedForward(FeedForwardLayer):
    """Linear, activation, linear."""

    equation = "φ(y W_1 + b_1) W_2 + b_2"

    def __init__(
        self,
        dim: int,
        inner: int | None = None,
        activation: Activation = F.relu,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        inner = 4 * dim if inner is None else inner
        self.inner = nn.Linear(dim, inner, bias=bias)
        self.outer = nn.Linear(inner, dim, bias=bias)
        self.activation, self.dropout = activation, Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))

    def native_form(self) -> FeedForwardForm | None:
        name = NATIVE.get(self.activation)
        return None if name is None else FeedForwardForm(name, self.inner, self.outer)


for _name in NATIVE.values():
    FEED_FORWARDS.register(_name)(partial(FeedForward, activation=ACTIVATIONS[_name]))


class GatedFeedForward(FeedForwardLayer):
    """One linear map, through φ, decides how much of another passes."""

    equation = "(φ(y W_g) · y W_1) W_2"

    def __init__(
        self,
        dim: int,
        inner: int | None = None,
        activation: Activation = F.silu,
        *,
        bias: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.activation = activation
        inner = 4 * dim if inner is None else inner
        self.gate = nn.Linear(dim, inner, bias=bias)
        self.inner = nn.Linear(dim, inner, bias=bias)
        self.outer = nn.Linear(inner, dim, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.gate(x)) * self.inner(x)))

    def native_form(self) -> FeedForwardForm | None:
        name = NATIVE.get(self.activation)
        return None if name is None else FeedForwardForm(name, self.inner, self.outer, self.gate)


@FEED_FORWARDS.register("swiglu")
class SwiGLU(GatedFeedForward):
    """Gated by swish."""

    equation = "(swish(y W_g) · y W_1) W_2"


FEED_FORWARDS.register("geglu")(partial(GatedFeedForward, activation=F.gelu))
FEED_FORWARDS.register("geglu_tanh")(partial(GatedFeedForward, activation=gelu_tanh))
FEED_FORWARDS.register("reglu")(partial(GatedFeedForward, activation=F.relu))
