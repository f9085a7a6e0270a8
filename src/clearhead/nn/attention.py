"""Attention: a query is compared with all keys, and takes the average of their values weighted by the comparison.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V

    B batch, T queries, S keys, H heads, G key-value heads, D key size, V value size

The equation stands here twice. `attention` is the equation itself, with any score and any mask, and returns its
weights. `fused_attention` gives the same output through torch's fused kernel, in memory linear in the length, and has
no weights to return. Tests hold the two equal in value and gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ShapeError
from clearhead.nn.cache import Cache, NoCache
from clearhead.nn.masks import Mask
from clearhead.nn.norm import Dropout, MakeNorm, NoNorm
from clearhead.nn.positions import Bias, NoRelativePositions, RelativePositions
from clearhead.nn.scores import Score, dot_scale, scaled_dot

Normalize = Callable[[Tensor, Tensor | None], Tensor]  # scores (…, T, S), mask -> weights (…, T, S)


# --- the equation ---


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    score: Score = scaled_dot,
    *,
    bias: Tensor | None = None,
    normalize: Normalize | None = None,
) -> tuple[Tensor, Tensor]:
    """q (…, T, D), k (…, S, D), v (…, S, V) -> output (…, T, V) and weights (…, T, S)."""
    scores = score(q, k)  # (…, T, S)
    scores = scores if bias is None else scores + bias
    weights = (normalize or softmax)(scores, mask)  # (…, T, S), each row sums to 1
    return weights @ v, weights


def softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Soft attention. Masked keys get exactly 0; a row with nothing to see is all zeros, never NaN."""
    if mask is None:
        return scores.softmax(-1)
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row of -inf has no gradient
    return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)


def pick_one(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Hard attention: all the weight on the best key; the gradient is that of the softmax (straight-through)."""
    soft = softmax(scores, mask)
    best = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
    hard = best if mask is None else best.masked_fill(~mask, 0.0)
    return hard + (soft - soft.detach())


# --- several heads ---


class KernelInputs(NamedTuple):
    """What a layer's kernel computes with."""

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, G, S, D)
    v: Tensor  # (B, G, S, V)
    mask: Mask
    offset: int  # query i stands at key i + offset
    bias: Bias | None


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each with its own queries, keys and values, combined by one matrix.

    Self-attention takes its keys and values from `x`, cross-attention from `memory`. Everything that can vary is
    a part: `score` and `normalize` replace the scaled dot product and the softmax, `relative` puts the order of the
    tokens into the heads, `head_norm` normalises every query and key, `joint_norm` those of all heads together,
    `kv_heads` lets groups of heads share keys and values, and `key_dim` and `value_dim` are the sizes of one head.
    A layer with a `window` sees less far than its mask allows. The cache belongs to the caller.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        memory_dim: int | None = None,
        score: Score = scaled_dot,
        normalize: Normalize = softmax,
        relative: RelativePositions | None = None,
        head_norm: MakeNorm = NoNorm,
        joint_norm: MakeNorm | None = None,
        window: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if dim % heads and (key_dim is None or value_dim is None):
            raise ShapeError(f"dim={dim} is not divisible by heads={heads}")
        if heads % kv_heads:
            raise ShapeError(f"heads={heads} is not divisible by kv_heads={kv_heads}")
        key_dim = dim // heads if key_dim is None else key_dim
        value_dim = dim // heads if value_dim is None else value_dim
        memory_dim = dim if memory_dim is None else memory_dim
        self.dim, self.heads, self.kv_heads, self.key_dim, self.value_dim = dim, heads, kv_heads, key_dim, value_dim
        self.query = nn.Linear(dim, heads * key_dim, bias=bias)
        self.key = nn.Linear(memory_dim, kv_heads * key_dim, bias=bias)
        self.value = nn.Linear(memory_dim, kv_heads * value_dim, bias=bias)
        self.output = nn.Linear(heads * value_dim, dim, bias=bias if output_bias is None else output_bias)
        self.query_norm, self.key_norm, self.window = head_norm(key_dim), head_norm(key_dim), window
        if joint_norm is not None:
            self.query_norm, self.key_norm = (JointNorm(joint_norm(n * key_dim)) for n in (heads, kv_heads))
        self.relative = NoRelativePositions() if relative is None else relative
        self.kernel = choose_kernel(score, normalize, dropout)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Mask | Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """x (B, T, dim), memory (B, S, memory_dim) -> (B, T, dim)."""
        mixed = self.kernel(*self.project(x, memory, mask, cache))  # (B, H, T, V)
        return self.output(join_heads(mixed))

    def weights(
        self, x: Tensor, memory: Tensor | None = None, mask: Mask | Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The attention weights of `forward`, by the explicit equation: (B, H, T, S)."""
        q, k, _, visible, offset, bias = self.project(x, memory, mask, cache)
        return self.kernel.explicit().weights(q, k, visible, offset, bias)

    def project(
        self, x: Tensor, memory: Tensor | None, mask: Mask | Tensor | None, cache: Cache | None
    ) -> KernelInputs:
        """Queries of x; keys and values of the memory (or of x) and of what the cache holds."""
        cache, memory = NoCache() if cache is None else cache, x if memory is None else memory
        start = cache.start
        q = self.relative.rotate(self.query_norm(split_heads(self.query(x), self.heads)), start)
        k, v = cache.extend(x.size(1), lambda: self.keys_and_values(memory, start))
        visible = Mask.of(mask).over(k.size(-2)).within(self.window)
        return KernelInputs(q, k, v, visible, start - cache.first, self.relative.bias)

    def keys_and_values(self, memory: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """Tokens (B, S, memory_dim) from position `start` on -> keys (B, G, S, D) and values (B, G, S, V)."""
        keys = self.relative.rotate(self.key_norm(split_heads(self.key(memory), self.kv_heads)), start)
        return keys, split_heads(self.value(memory), self.kv_heads)


class JointNorm(nn.Module):
    """A norm of the heads side by side: (B, H, T, D) as vectors of H × D."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(self.norm(join_heads(x)), x.size(1))


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H × D) -> (B, H, T, D)."""
    return x.view(*x.shape[:2], heads, x.size(2) // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, V) -> (B, T, H × V): the heads side by side."""
    return x.transpose(1, 2).flatten(-2)


def share_heads(x: Tensor, heads: int) -> Tensor:
    """(B, G, S, D) -> (B, H, S, D): each key-value head serves a group of H / G neighbouring heads."""
    return x if x.size(1) == heads else x.repeat_interleave(heads // x.size(1), dim=1)


def concatenate_and_project(z: Tensor, weight: Tensor) -> Tensor:
    """[Z_1 … Z_H] W_O, as in the paper. z (B, H, T, V), weight (H × V, D) -> (B, T, D)."""
    return join_heads(z) @ weight


def sum_of_projections(z: Tensor, weight: Tensor) -> Tensor:
    """Σ_h Z_h W_h, as in the MIT notes; W_h is the h-th block of rows of W_O, so the two are equal."""
    blocks = weight.unflatten(0, (z.size(1), -1))  # (H, V, D)
    return (z @ blocks).sum(1)


# --- two kernels with one meaning ---


class Explicit(nn.Module):
    """The equation as it is written, for any score and any normalisation of the scores."""

    def __init__(self, score: Score = scaled_dot, normalize: Normalize = softmax, dropout: float = 0.0):
        super().__init__()
        self.score, self.normalize, self.dropout = score, normalize, Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, offset: int, bias: Bias | None) -> Tensor:
        """q (B, H, T, D), k (B, G, S, D), v (B, G, S, V) -> (B, H, T, V)."""
        return self.dropout(self.weights(q, k, mask, offset, bias)) @ share_heads(v, q.size(1))

    def weights(self, q: Tensor, k: Tensor, mask: Mask, offset: int = 0, bias: Bias | None = None) -> Tensor:
        """q (B, H, T, D), k (B, G, S, D) -> (B, H, T, S)."""
        visible, added = _tables(mask, bias, (0, q.size(-2)), (0, k.size(-2)), offset, q)
        scores = self.score(q, share_heads(k, q.size(1)))
        return self.normalize(scores if added is None else scores + added, visible)

    def explicit(self) -> Explicit:
        return self


class Fused(nn.Module):
    """torch's fused kernel: a softmax over multiples of the dot product; it has no weights to show."""

    normalize = staticmethod(softmax)

    def __init__(self, score: Score = scaled_dot, dropout: float = 0.0):
        super().__init__()
        self.score, self.dropout = score, dropout

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, offset: int, bias: Bias | None) -> Tensor:
        """q (B, H, T, D), k (B, G, S, D), v (B, G, S, V) -> (B, H, T, V)."""
        scale, dropout = dot_scale(self.score, q.size(-1)), self.dropout if self.training else 0.0
        return fused_attention(q, k, v, mask, scale=scale, bias=bias, offset=offset, dropout=dropout)

    def explicit(self) -> Explicit:
        """The same computation by the equation, which has weights."""
        return Explicit(self.score)


def choose_kernel(score: Score, normalize: Normalize, dropout: float) -> Fused | Explicit:
    """The fused kernel for a softmax over multiples of the dot product, else the equation."""
    can_fuse = normalize is softmax and dot_scale(score, 1) is not None
    return Fused(score, dropout) if can_fuse else Explicit(score, normalize, dropout)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None = None,
    *,
    scale: float | None = None,
    bias: Bias | None = None,
    offset: int = 0,
    dropout: float = 0.0,
) -> Tensor:
    """q (B, H, T, D), k (B, G, S, D), v (B, G, S, V) -> (B, H, T, V); query i stands at key i + offset.

    A mask or a bias is written out for some queries at a time, and only over the keys that these can see: a long
    text needs no T × S table, and a window costs time linear in the length.
    """
    mask = Mask.of(mask)
    kernel = partial(_kernel, scale=scale, dropout=dropout)
    queries, keys = q.size(-2), k.size(-2)
    if mask.is_only_causal and bias is None and offset == 0 and queries > 1:
        return kernel(q, k[..., :queries, :], v[..., :queries, :], None, is_causal=True)
    rows = _rows_per_table(mask, bias, q, keys)
    parts = []
    for first in range(0, max(queries, 1), rows):
        last = min(first + rows, queries)
        low, high = mask.reach(first, last, keys, offset)
        table = _kernel_mask(*_tables(mask, bias, (first, last), (low, high), offset, q))
        parts.append(kernel(q[..., first:last, :], k[..., low:high, :], v[..., low:high, :], table))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def _rows_per_table(mask: Mask, bias: Bias | None, q: Tensor, keys: int) -> int:
    """Queries that share one table: all if there is none, a window's worth, or as many as fit some megabytes."""
    queries = max(q.size(-2), 1)
    if mask.window is not None:
        return max(mask.window, 128)
    if bias is None and not mask.causal and (mask.table is None or mask.table.size(-2) == 1):
        return queries
    tables = (1 if mask.table is None else mask.table.shape[:-2].numel()) * (1 if bias is None else q.size(1))
    return max(1, 2**24 // max(1, keys * tables))


def _tables(
    mask: Mask, bias: Bias | None, queries: tuple[int, int], keys: tuple[int, int], offset: int, like: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Of a span of queries and keys, the visible ones, (T, S) or (B, 1, T, S), and the bias, (H, T, S)."""
    visible = mask.rows(*queries, *keys, offset, like.device)
    visible = visible.unsqueeze(-3) if visible is not None and visible.dim() == 3 else visible
    if bias is None:
        return visible, None
    position = torch.arange(queries[0] + offset, queries[1] + offset, device=like.device)
    return visible, bias(position, torch.arange(*keys, device=like.device)).to(like.dtype)


def _kernel_mask(visible: Tensor | None, added: Tensor | None) -> Tensor | None:
    """The one table that the kernel takes: boolean, or float with -inf where a key is hidden."""
    if visible is None or added is None:
        return visible if added is None else added
    return added.masked_fill(~visible, -math.inf)


def _kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """torch's kernel. It is only fast when keys and values have one size, so the smaller are padded with zeros."""
    key_dim, value_dim = q.size(-1), v.size(-1)
    scale = key_dim**-0.5 if scale is None else scale
    q, k = (F.pad(x, (0, value_dim - key_dim)) if value_dim > key_dim else x for x in (q, k))
    v = F.pad(v, (0, key_dim - value_dim)) if key_dim > value_dim else v
    mixed = F.scaled_dot_product_attention(
        q, k, v, table, dropout, is_causal, scale=scale, enable_gqa=q.size(1) != k.size(1)
    )
    return mixed[..., :value_dim] if key_dim > value_dim else mixed
