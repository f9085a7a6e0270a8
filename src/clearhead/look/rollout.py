"""Attention rollout: how much of each input token is in what the last layer knows, if attention were all that mixes.

    Â_l = r I + (1 - r) A_l                  the residual connection keeps a share r of every token
    R   = Â_L … Â_2 Â_1                      row i: where token i of the last layer comes from

    H heads, T tokens

(Abnar and Zuidema, 2020.) Everything here takes any dimensions in front of these, so a batch is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError, nearest

Heads = Literal["mean", "max", "min"]

FUSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda weights: weights.mean(-3),
    "max": lambda weights: weights.amax(-3),
    "min": lambda weights: weights.amin(-3),
}


def rollout(weights: Sequence[Tensor], heads: Heads = "mean", residual: float = 0.5) -> Tensor:
    """The weights (…, H, T, T) of every layer, first to last -> (…, T, T), each row a share of 1."""
    mixed = mixtures(weights, heads, residual)
    rolled = mixed[0]
    for mixture in mixed[1:]:
        rolled = mixture @ rolled
    return rolled


def mixtures(weights: Sequence[Tensor], heads: Heads = "mean", residual: float = 0.5) -> list[Tensor]:
    """Â of every layer, (…, T, T): its heads as one, and the residual connection mixed in."""
    if not 0 <= residual <= 1:
        raise ConfigError(f"residual={residual:g} is no share of a token; choose a number from 0 to 1")
    square = _self_attention(weights)
    itself = torch.eye(square[0].size(-1), dtype=square[0].dtype, device=square[0].device)
    return [residual * itself + (1 - residual) * fuse_heads(each, heads) for each in square]


def fuse_heads(weights: Tensor, heads: Heads = "mean") -> Tensor:
    """(…, H, T, S) -> (…, T, S): one table for all heads, its rows brought back to a sum of 1."""
    if heads not in FUSIONS:
        raise ConfigError(f"unknown way to fuse heads {heads!r}; {nearest(heads, FUSIONS)}")
    fused = FUSIONS[heads](weights)
    return fused / fused.sum(-1, keepdim=True).clamp(min=torch.finfo(fused.dtype).tiny)


def _self_attention(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """Layers that can follow each other: each token looks at the same tokens."""
    if not weights:
        raise ShapeError("there are no layers to roll out; look at a model with attention")
    for layer, each in enumerate(weights):
        if each.dim() < 3 or each.size(-1) != each.size(-2) or each.size(-1) != weights[0].size(-1):
            raise ShapeError(
                f"layer {layer} has weights of shape {tuple(each.shape)} where (heads, tokens, tokens) is needed; "
                "roll out self-attention"
            )
    return weights


def over_patches(shares: Tensor, grid: tuple[int, int], class_token: bool = True) -> Tensor:
    """(…, T, T), from a rollout, a flow or a relevance -> (…, rows, columns): how much the answer took of each patch.

    The class token's row speaks for the image, and where there is none the mean of all rows; the map sums to 1.
    """
    rows, columns = grid
    if shares.size(-1) != rows * columns + class_token:
        raise ShapeError(f"a grid of {rows} × {columns} patches does not fit {shares.size(-1)} tokens")
    seen = shares[..., 0, 1:] if class_token else shares.mean(-2)
    seen = seen / seen.sum(-1, keepdim=True).clamp(min=torch.finfo(seen.dtype).tiny)
    return seen.reshape(*seen.shape[:-1], rows, columns)


def share_on(mass: Tensor, marked: Tensor) -> Tensor:
    """mass (…, rows, columns), marked pixels (…, height, width) boolean -> (…): the share of the mass on these.

    The mass of a patch lies evenly on its pixels; so spread over the whole image, it would have the share that
    is marked, which is what chance gives.
    """
    (rows, columns), (height, width) = mass.shape[-2:], marked.shape[-2:]
    if height % rows or width % columns:
        raise ShapeError(f"a grid of {rows} × {columns} patches does not fit an image of {height} × {width}")
    squares = (rows, height // rows, columns, width // columns)
    patches = marked.reshape(*marked.shape[:-2], *squares)  # (…, rows, P, columns, P)
    return (mass * patches.to(mass.dtype).mean((-3, -1))).sum((-2, -1))
