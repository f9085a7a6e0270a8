"""The weights before training. Parts that initialise themselves (positions, scores, norms) are left alone.

    linear maps          Xavier: an output has the variance of an input, for any width; biases 0
    token vectors        unit variance after scaling, like the positions added to them; small (0.02) where no position
                         is added and no recurrent network reads them: a large vector, tied to the output, would begin
                         by predicting itself
    ends of residuals    divided by √(number of sums in the stack), so that the sum does not grow with the depth
    recurrent networks   each gate's matrix on the state is orthogonal, so that a state neither grows nor fades;
                         the bias of an LSTM's forget gate is 1, so that it begins by remembering

Only torch's generator is used, module by module: the same seed gives the same weights. A model whose weights are
loaded needs none of this:

    with without_initialisation():
        model = build(config, sizes)
    model.load_state_dict(weights)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.models.assemble import TokenInput
from clearhead.nn import Decoder, DecoderBlock, Encoder, EncoderBlock

GATES = {"RNN_TANH": 1, "GRU": 3, "LSTM": 4}
FORGET = 1  # index of the forget gate among the four of an LSTM

_skipped = ContextVar("skipped", default=False)  # inside without_initialisation


@torch.no_grad()
def initialise(model: nn.Module) -> nn.Module:
    """Initialise the weights of a new model in place; returns it."""
    if _skipped.get():
        return model
    parts = list(model.modules())
    tied = {id(part.weight) for part in parts if isinstance(part, nn.Embedding)}
    recurrent = any(isinstance(part, nn.RNNBase) for part in parts)
    for part in parts:
        if isinstance(part, nn.Linear) and id(part.weight) not in tied:
            _initialise_linear(part)
        elif isinstance(part, nn.RNNBase):
            _initialise_recurrent(part)
        elif isinstance(part, TokenInput) and not part.positions.has_vectors and not recurrent:
            part.tokens.start_from(0.02 * torch.randn_like(part.tokens.table.weight))
    for stack in parts:
        if isinstance(stack, Encoder | Decoder):
            _shrink_residuals(stack)
    return model


def _initialise_linear(linear: nn.Linear) -> None:
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _initialise_recurrent(network: nn.RNNBase) -> None:
    for name, weight in network.named_parameters():
        gates = weight.chunk(GATES[network.mode])
        if name.startswith("bias"):
            nn.init.zeros_(weight)
        else:
            start = nn.init.xavier_uniform_ if name.startswith("weight_ih") else nn.init.orthogonal_
            for gate in gates:
                start(gate)
        if network.mode == "LSTM" and name.startswith("bias_ih"):
            nn.init.ones_(gates[FORGET])


def _shrink_residuals(stack: Encoder | Decoder) -> None:
    """Scale down what each block adds to the residual stream."""
    blocks: Iterable[EncoderBlock | DecoderBlock] = stack.blocks  # type: ignore[assignment]
    outputs = [linear for block in blocks for linear in block.residual_outputs()]
    for linear in outputs:
        linear.weight.div_(math.sqrt(len(outputs)))


# --- no initialisation ---

# Random functions, and the ones that allocate the same tensor without drawing numbers.
_ALLOCATE: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    torch.randn: torch.empty,
    torch.rand: torch.empty,
    torch.randn_like: torch.empty_like,
    torch.rand_like: torch.empty_like,
}
_FILL: set[Callable[..., Tensor]] = {
    *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_, torch.Tensor.exponential_),
    *(nn.init.normal_, nn.init.uniform_, nn.init.kaiming_normal_, nn.init.kaiming_uniform_),
}


class _WithoutRandomNumbers(TorchFunctionMode):
    """Random functions draw nothing: new tensors are left as allocated, existing ones as they are."""

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in _FILL:
            return args[0] if args else named["tensor"]
        return _ALLOCATE.get(func, func)(*args, **named)


@contextmanager
def without_initialisation() -> Iterator[None]:
    """While open, models built in this thread draw no random weights; buffers (sines, slopes) are computed as always.

    The weights are undefined until they are loaded.
    """
    token = _skipped.set(True)
    try:
        with _WithoutRandomNumbers():
            yield
    finally:
        _skipped.reset(token)
