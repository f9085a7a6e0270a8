"""Attention flow: how much could flow from an output token to an input token, if every attention weight were a pipe.

The tokens of all layers are nodes of a graph, and Â of `rollout.py` gives the capacity of each edge between two layers.
The maximum flow counts a bottleneck once, however many paths share it; a rollout adds all paths up.

    L layers, H heads, T tokens

(Abnar and Zuidema, 2020.) One maximum flow for each pair of tokens: meant for a sentence, not for a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.record import LookRecord
from clearhead.look.view import VIEWS, ViewOptions
from clearhead.look.views.rollout import HeadFusion, Rollout, head_fusion, layer_mixtures, self_attention

CAPACITY = 2**30  # of an edge of weight 1: SciPy computes with integers


@VIEWS.register("flow")
@dataclass(frozen=True, eq=False)
class Flow(Rollout):
    """What each token came from, as a maximum flow through all layers."""

    page = "flow"
    name = "flow"
    label = "maximum flow"  # rows do not sum to 1: each pair of tokens has all pipes to itself

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Self:
        """Of an image only the flow to its class token."""
        kind = self_attention(look, options)
        weights, method = look.pick(kind).weights, head_fusion(options)
        if look.grid is None:
            shares = flow(weights, method)
        else:
            row = flow(weights, method, tokens=[0])  # (1, T)
            shares = row.expand(row.size(1), -1)
        return cls(look, kind, {"flow": shares}, options.rows, options.columns)

    def page_data(self) -> dict[str, Any]:
        return {**self.to_json(), "model": self.look.model, "text": self.look.text}


def flow(
    weights: Sequence[Tensor], heads: HeadFusion = "mean", residual: float = 0.5, tokens: Sequence[int] | None = None
) -> Tensor:
    """The weights (H, T, T) of every layer, first to last -> (T, T): the flow from each output to each input token.

    With `tokens` only the rows of these output tokens: (len(tokens), T).
    """
    capacities = torch.stack(layer_mixtures(weights, heads, residual))  # (L, T, T)
    if capacities.dim() != 3:
        raise ShapeError(f"weights of shape {tuple(weights[0].shape)} are a batch; compute one example at a time")
    layers, length, _ = capacities.shape
    graph, maximum_flow = _graph(capacities)
    rows = range(length) if tokens is None else tokens
    for token in rows:
        if not 0 <= token < length:
            raise ShapeError(f"there is no token {token}; the tokens are 0 to {length - 1}")
    values = [
        [maximum_flow(graph, layers * length + row, column).flow_value for column in range(length)] for row in rows
    ]
    return torch.tensor(values, dtype=capacities.dtype) / CAPACITY


def _graph(capacities: Tensor) -> tuple[Any, Any]:
    """capacities (L, T, T) -> a graph of (L + 1) × T nodes, the input's first; and SciPy's maximum_flow."""
    try:
        from scipy.sparse import csr_array  # type: ignore[import-untyped]
        from scipy.sparse.csgraph import maximum_flow  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("attention flow needs SciPy: pip install 'clearhead[look]'") from None
    layers, length, _ = capacities.shape
    layer, row, column = np.indices(capacities.shape).reshape(3, -1)
    weights = (capacities.double().cpu() * CAPACITY).round().to(torch.int32).numpy().ravel()
    ends = ((layer + 1) * length + row, layer * length + column)
    nodes = (layers + 1) * length
    return csr_array((weights, ends), shape=(nodes, nodes)), maximum_flow
