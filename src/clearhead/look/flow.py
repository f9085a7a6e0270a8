"""Attention flow: how much could run from an output token to an input token, if every attention weight were a pipe.

The tokens of all layers are junctions, and Â of `rollout.py` says how wide each pipe between two layers is. The
maximum flow counts a narrow place once, however many paths share it; a rollout adds all paths up.

    L layers, H heads, T tokens

(Abnar and Zuidema, 2020.) One maximum flow for each pair of tokens: meant for a sentence, not for a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.rollout import Heads, mixtures

WIDEST = 2**30  # the library counts in whole numbers: a pipe of width 1


def flow(
    weights: Sequence[Tensor], heads: Heads = "mean", residual: float = 0.5, tokens: Sequence[int] | None = None
) -> Tensor:
    """The weights (H, T, T) of every layer, first to last -> (T, T): the flow from each output to each input token.

    With `tokens` only the rows of these output tokens: (len(tokens), T).
    """
    pipes = torch.stack(mixtures(weights, heads, residual))  # (L, T, T)
    if pipes.dim() != 3:
        raise ShapeError(f"weights of shape {tuple(weights[0].shape)} are a batch; let one example flow at a time")
    layers, length, _ = pipes.shape
    network, maximum_flow = _network(pipes)
    rows = range(length) if tokens is None else tokens
    values = [
        [maximum_flow(network, layers * length + _existing(row, length), column).flow_value for column in range(length)]
        for row in rows
    ]
    return torch.tensor(values, dtype=pipes.dtype) / WIDEST


def _network(pipes: Tensor) -> tuple[Any, Any]:
    """pipes (L, T, T) as a graph of (L + 1) × T junctions, the input's first; and what finds a flow in it."""
    try:
        from scipy.sparse import csr_array  # type: ignore[import-untyped]
        from scipy.sparse.csgraph import maximum_flow  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("attention flow needs SciPy: pip install 'clearhead[look]'") from None
    layers, length, _ = pipes.shape
    layer, row, column = np.indices(pipes.shape).reshape(3, -1)
    widths = (pipes.double().cpu() * WIDEST).round().to(torch.int32).numpy().ravel()
    ends = ((layer + 1) * length + row, layer * length + column)
    junctions = (layers + 1) * length
    return csr_array((widths, ends), shape=(junctions, junctions)), maximum_flow


def _existing(token: int, length: int) -> int:
    if not 0 <= token < length:
        raise ShapeError(f"there is no token {token}; the tokens are 0 to {length - 1}")
    return token
