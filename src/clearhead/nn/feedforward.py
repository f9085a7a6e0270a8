"""Feed-forward: the same small network for every token; it mixes within a token what attention mixed between.

    FFN(x)    = φ(x W_1 + b_1) W_2 + b_2          φ = ReLU or GELU
    SwiGLU(x) = (swish(x W_g) · x W_1) W_2

Wider inside than outside: `inner` is 4 × dim unless said.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn.dropout import Dropout

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """Linear, nonlinearity, linear; `inner` is 4 × dim unless said."""

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
        """(…, D) -> (…, D)."""
        return self.outer(self.dropout(self.activation(self.inner(x))))


class SwiGLU(nn.Module):
    """A gated feed-forward: one linear map decides how much of the other passes."""

    def __init__(self, dim: int, inner: int | None = None, *, bias: bool = False, dropout: float = 0.0):
        super().__init__()
        inner = 4 * dim if inner is None else inner
        self.gate = nn.Linear(dim, inner, bias=bias)
        self.inner = nn.Linear(dim, inner, bias=bias)
        self.outer = nn.Linear(inner, dim, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, D)."""
        return self.outer(self.dropout(F.silu(self.gate(x)) * self.inner(x)))
