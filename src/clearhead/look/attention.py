"""One call of an attention layer: its weights and scores by the explicit equation.

The fused kernel keeps no weights, so they are computed from its queries and keys: only for the requested heads, and a
strip of queries at a time, over the keys that these can see. So one head of a long text needs its own matrix and little
more. If all heads are requested, their weights also give the output, and the kernel need not run.

    B batch, H heads, G key-value heads, T queries, S keys, D key size, V value size
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from clearhead.nn import Explicit, Mask, softmax
from clearhead.nn.attention import Normalize, share_heads
from clearhead.nn.positions import Bias
from clearhead.nn.scores import Score, dot_scale

Weights = Callable[[Tensor, Tensor, Mask, int, Bias | None], Tensor]  # q, k, mask, offset, bias -> (B, H, T, S)
STRIP = 2**19  # entries of the matrix that are computed at once: they fit into the processor's cache


@dataclass(frozen=True)
class AttentionCall:
    """The parts, inputs and output of one call of `Fused` or `Explicit`."""

    score: Score
    normalize: Normalize
    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, G, S, D)
    v: Tensor  # (B, G, S, V)
    mask: Mask
    offset: int  # query i has the position of key i + offset
    bias: Bias | None
    mixed: Tensor  # (B, H, T, V)

    def of(self, heads: Sequence[int]) -> AttentionCall:
        """The call restricted to some heads, with keys and values repeated for each."""
        count, bias = self.q.size(1), self.bias
        group = [head * self.k.size(1) // count for head in heads]
        return replace(
            self,
            score=score_for_heads(self.score, heads, count),
            q=self.q[:, heads],
            k=self.k[:, group],
            v=self.v[:, group],
            bias=None if bias is None else lambda queries, keys: bias(queries, keys)[heads],
            mixed=self.mixed[:, heads],
        )

    def weights(self) -> Tensor:
        """(B, H, T, S): exactly 0 where nothing may be seen."""
        if self._rows_at_once >= self.q.size(2):
            return self._whole()
        return self._assemble(self._strips(self._compute_weights, self.mask))

    def weights_and_mixture(self) -> tuple[Tensor, Tensor]:
        """The weights, and the weighted sums of the values, (B, H, T, V)."""
        batch, heads, queries, _ = self.q.shape
        v = share_heads(self.v, heads)
        if self._rows_at_once >= queries:
            weights = self._whole()
            return weights, weights @ v
        mixed = v.new_empty(batch, queries, heads, v.size(-1)).transpose(1, 2)  # heads are joined without a copy

        def mix_strips() -> Iterator[Strip]:
            for strip in self._strips(self._compute_weights, self.mask):
                mixed[..., strip.queries, :] = strip.values @ v[..., strip.keys, :]
                yield strip

        return self._assemble(mix_strips()), mixed

    def scores(self) -> Tensor:
        """(B, H, T, S): the input of the softmax, before the mask."""
        equation = Explicit(self.score, normalize=lambda scores, _: scores)
        return self._assemble(self._strips(equation.weights, Mask()))

    def visible(self) -> Tensor:
        """(B, T, S): True = may be seen."""
        batch, _, queries, _ = self.q.shape
        keys = self.k.size(-2)
        return self.mask.table_of(queries, keys, self.offset, self.q.device).expand(batch, queries, keys)

    @property
    def _compute_weights(self) -> Weights:
        scale = dot_scale(self.score, self.q.size(-1))
        if self.normalize is softmax and scale is not None:
            return partial(softmax_of_products, scale)
        return Explicit(self.score, self.normalize).weights

    @property
    def _rows_at_once(self) -> int:
        return max(1, STRIP // max(1, self.q.size(0) * self.q.size(1) * self.k.size(2)))

    def _whole(self) -> Tensor:
        """The weights of a short text, without strips."""
        mask, (queries, keys) = self.mask, (self.q.size(2), self.k.size(2))
        if not mask.is_only_causal:
            mask = Mask(table=mask.rows(0, queries, 0, keys, self.offset, self.q.device))
        return self._compute_weights(self.q, share_heads(self.k, self.q.size(1)), mask, self.offset, self.bias)

    def _strips(self, compute: Weights, mask: Mask) -> Iterator[Strip]:
        """Some queries at a time, over the keys that these can see."""
        queries, k = self.q.size(2), share_heads(self.k, self.q.size(1))
        keys, rows = k.size(2), self._rows_at_once
        for first in range(0, queries, rows):
            last = min(first + rows, queries)
            low, high = mask.reach(first, last, keys, self.offset)
            seen = mask
            if not mask.is_only_causal:
                seen = Mask(table=mask.rows(first, last, low, high, self.offset, self.q.device))
            offset = self.offset + first - low  # only distances count, so the keys of a strip begin at 0
            values = compute(self.q[..., first:last, :], k[..., low:high, :], seen, offset, self.bias)
            yield Strip(slice(first, last), slice(low, high), values)

    def _assemble(self, strips: Iterator[Strip]) -> Tensor:
        """(B, H, T, S); 0 outside the strips."""
        batch, heads, queries, _ = self.q.shape
        shape = (batch, heads, queries, self.k.size(-2))
        result = None
        for strip in strips:
            if strip.values.shape == shape:
                return strip.values
            result = self.q.new_empty(shape) if result is None else result
            rows = result[..., strip.queries, :]
            rows[..., : strip.keys.start] = rows[..., strip.keys.stop :] = 0.0
            rows[..., strip.keys] = strip.values
        return self.q.new_empty(shape) if result is None else result


@dataclass(frozen=True)
class Strip:
    """A result for some queries over some keys."""

    queries: slice
    keys: slice
    values: Tensor  # (B, H, queries, keys)


def softmax_of_products(scale: float, q: Tensor, k: Tensor, mask: Mask, offset: int, bias: Bias | None) -> Tensor:
    """`Explicit.weights` for dot products, with as little memory traffic as possible.

    The mask is a table, or only causal: then all queries see the keys up to the first of them.
    """
    nothing, pairs = q.new_empty(()), (q.flatten(0, 1), k.flatten(0, 1).mT)  # (B H, T, D), (B H, D, S)
    scores = torch.baddbmm(nothing, *pairs, beta=0, alpha=scale).view(*q.shape[:3], -1)  # (B, H, T, S)
    if bias is not None:
        position = torch.arange(offset, offset + q.size(-2), device=q.device)
        scores += bias(position, torch.arange(k.size(-2), device=q.device))
    if mask.is_only_causal:
        later = scores[..., offset + 1 :]  # (B, H, T, S - offset - 1)
        later += _lowest_above_diagonal(*later.shape[-2:], q.dtype, q.device)
        return scores.softmax(-1)
    if mask.table is None:
        return scores.softmax(-1)
    visible = mask.table.unsqueeze(-3)  # (1, T, S) or (B, 1, T, S)
    scores += torch.zeros_like(visible, dtype=q.dtype).masked_fill_(~visible, torch.finfo(q.dtype).min)
    weights, sees = scores.softmax(-1), visible.any(-1, keepdim=True)
    return weights if sees.all() else weights.mul_(sees)  # a row that sees nothing is all zeros


@lru_cache(maxsize=4)  # every layer uses the same one
def _lowest_above_diagonal(queries: int, keys: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(T, S): added to scores, it hides the keys above the diagonal."""
    return torch.full((queries, keys), torch.finfo(dtype).min, dtype=dtype, device=device).triu_()


CALL_TENSORS: dict[str, Callable[[AttentionCall], Tensor]] = {
    "weights": AttentionCall.weights,
    "scores": AttentionCall.scores,
    "visible": AttentionCall.visible,
    "query": lambda call: call.q,
    "key": lambda call: call.k,
    "value": lambda call: call.v,
    "mixed": lambda call: call.mixed,
}


def score_for_heads(score: Score, heads: Sequence[int], count: int) -> Score:
    """A score for some of `count` heads: parameters with three axes, heads first, are restricted to these."""
    if not isinstance(score, nn.Module):
        return score
    own = {name: each[heads] for name, each in score.named_parameters() if each.dim() == 3 and len(each) == count}

    def score_these(q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = functional_call(score, own, (q, k))
        return scores

    return score_these
