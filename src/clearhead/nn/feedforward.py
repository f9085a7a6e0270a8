"""Feed-forward: the same small network for every token; it mixes within a token what attention mixed between tokens.

    FFN(x)    = φ(x W_1 + b_1) W_2 + b_2          φ = ReLU or GELU
    SwiGLU(x) = (swish(x W_g) · x W_1) W_2

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

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn.norm import Dropout
from clearhead.registry import Registry

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FeedForwardForm:
    """What native code needs to know: outer(φ(inner(x))), or outer(φ(gate(x)) · inner(x))."""

    activation: str  # "relu", "gelu" or "silu"
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
        name = {F.relu: "relu", F.gelu: "gelu"}.get(self.activation)
        return None if name is None else FeedForwardForm(name, self.inner, self.outer)


FEED_FORWARDS.register("relu")(partial(FeedForward, activation=F.relu))
FEED_FORWARDS.register("gelu")(partial(FeedForward, activation=F.gelu))


@FEED_FORWARDS.register("swiglu")
class SwiGLU(FeedForwardLayer):
    """A gated feed-forward network: one linear map decides how much of the other passes."""

    equation = "(swish(y W_g) · y W_1) W_2"

    def __init__(self, dim: int, inner: int | None = None, *, bias: bool = False, dropout: float = 0.0):
        super().__init__()
        inner = 4 * dim if inner is None else inner
        self.gate = nn.Linear(dim, inner, bias=bias)
        self.inner = nn.Linear(dim, inner, bias=bias)
        self.outer = nn.Linear(inner, dim, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.silu(self.gate(x)) * self.inner(x)))

    def native_form(self) -> FeedForwardForm:
        return FeedForwardForm("silu", self.inner, self.outer, self.gate)
