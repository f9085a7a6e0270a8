"""The weights before training. Parts that start themselves (positions, scores, norms) are left alone.

    linear maps          Xavier: an output is about as large as an input, whatever the width; biases 0
    token vectors        as large as the positions added to them, or as a recurrent network likes them; small (0.02)
                         where neither is there: a large one, tied to the output, begins by predicting itself
    ends of residuals    divided by √(number of sums in the stack), so that the sum does not grow with the depth
    recurrent networks   each gate's matrix on the state is orthogonal, so that a state neither grows nor fades;
                         an LSTM begins by remembering: the bias of its forget gate is 1

Only torch's generator is used, module by module: the same seed gives the same weights.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from clearhead.models.assemble import TokenInput
from clearhead.nn import AddNorm, Decoder, Encoder, FeedForward, MultiHeadAttention, NoPositions, SwiGLU

GATES = {"RNN_TANH": 1, "GRU": 3, "LSTM": 4}
FORGET = 1  # the place of the forget gate among the four of an LSTM


@torch.no_grad()
def initialise(model: nn.Module) -> nn.Module:
    """Start every weight of a new model; gives the model back."""
    parts = list(model.modules())
    tied = {id(part.weight) for part in parts if isinstance(part, nn.Embedding)}
    recurrent = any(isinstance(part, nn.RNNBase) for part in parts)
    for part in parts:
        if isinstance(part, nn.Linear) and id(part.weight) not in tied:
            _start_linear(part)
        elif isinstance(part, nn.RNNBase):
            _start_recurrent(part)
        elif isinstance(part, TokenInput) and isinstance(part.positions, NoPositions) and not recurrent:
            part.tokens.start_from(0.02 * torch.randn_like(part.tokens.table.weight))
    for stack in parts:
        if isinstance(stack, Encoder | Decoder):
            _shrink_residuals(stack)
    return model


def _start_linear(linear: nn.Linear) -> None:
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _start_recurrent(network: nn.RNNBase) -> None:
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
    """What a block adds to the residual path comes out of these two maps."""
    sums = sum(isinstance(part, AddNorm) for part in stack.modules())  # 2 or 3 for each block
    for part in stack.modules():
        if isinstance(part, MultiHeadAttention):
            part.output.weight.div_(math.sqrt(sums))
        elif isinstance(part, FeedForward | SwiGLU):
            part.outer.weight.div_(math.sqrt(sums))
