"""One call of an attention layer, and what can be seen of it by the explicit equation.

The fused kernel keeps no weights, so they are computed from the queries and keys that it was given: only for the heads
that are asked for, and a strip of queries at a time, over the keys that these can see. So one head of a long text needs
its own matrix and little more. Where all heads are asked for, their weights also give the mixture, and the kernel is
not needed.

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
STRIP = 2**19  # numbers of the matrix that are computed at once: they stay in the processor's cache


@dataclass(frozen=True)
class AttentionCall:
    """What a layer attended with: all that `Fused` and `Explicit` are made of and given, and what came out."""

    score: Score
    normalize: Normalize
    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, G, S, D)
    v: Tensor  # (B, G, S, V)
    mask: Mask
    offset: int  # query i stands at key i + offset
    bias: Bias | None
    mixed: Tensor  # (B, H, T, V)

    def of(self, heads: Sequence[int]) -> AttentionCall:
        """The same for some heads only; each has keys and values of its own."""
        count = self.q.size(1)
        group = [head * self.k.size(1) // count for head in heads]
        return replace(
            self,
            score=score_of(self.score, heads, count),
            q=self.q[:, heads],
            k=self.k[:, group],
            v=self.v[:, group],
            bias=self.bias and bias_of(self.bias, heads),
            mixed=self.mixed[:, heads],
        )

    def weights(self) -> Tensor:
        """(B, H, T, S): exactly 0 where nothing may be seen."""
        if self._rows_at_once >= self.q.size(2):
            return self._at_once()
        return self._put_together(self._strips(self._weigh, self.mask))

    def weights_and_mixture(self) -> tuple[Tensor, Tensor]:
        """The same, and the values weighed with them, (B, H, T, V)."""
        batch, heads, queries, _ = self.q.shape
        v = share_heads(self.v, heads)
        if self._rows_at_once >= queries:
            weights = self._at_once()
            return weights, weights @ v
        mixed = v.new_empty(batch, queries, heads, v.size(-1)).transpose(1, 2)  # so that heads join without a copy

        def mixing() -> Iterator[Strip]:
            for strip in self._strips(self._weigh, self.mask):
                mixed[..., strip.queries, :] = strip.found @ v[..., strip.keys, :]
                yield strip

        return self._put_together(mixing()), mixed

    def scores(self) -> Tensor:
        """(B, H, T, S): what the softmax reads, before the mask."""
        equation = Explicit(self.score, normalize=lambda scores, _: scores)
        return self._put_together(self._strips(equation.weights, Mask()))

    def visible(self) -> Tensor:
        """(B, T, S): True = may be seen."""
        batch, _, queries, _ = self.q.shape
        keys = self.k.size(-2)
        return self.mask.table_of(queries, keys, self.offset, self.q.device).expand(batch, queries, keys)

    @property
    def _weigh(self) -> Weights:
        scale = dot_scale(self.score, self.q.size(-1))
        if self.normalize is softmax and scale is not None:
            return partial(softmax_of_products, scale)
        return Explicit(self.score, self.normalize).weights

    @property
    def _rows_at_once(self) -> int:
        """How many queries a strip has."""
        return max(1, STRIP // max(1, self.q.size(0) * self.q.size(1) * self.k.size(2)))

    def _at_once(self) -> Tensor:
        """The weights of a short text, which needs no strips."""
        mask, (queries, keys) = self.mask, (self.q.size(2), self.k.size(2))
        if not mask.is_only_causal:
            mask = Mask(table=mask.rows(0, queries, 0, keys, self.offset, self.q.device))
        return self._weigh(self.q, share_heads(self.k, self.q.size(1)), mask, self.offset, self.bias)

    def _strips(self, weigh: Weights, mask: Mask) -> Iterator[Strip]:
        """Some queries at a time, over the keys that these can see."""
        queries, k = self.q.size(2), share_heads(self.k, self.q.size(1))
        keys, rows = k.size(2), self._rows_at_once
        for first in range(0, queries, rows):
            last = min(first + rows, queries)
            low, high = mask.reach(first, last, keys, self.offset)
            seen = mask
            if not mask.is_only_causal:
                seen = Mask(table=mask.rows(first, last, low, high, self.offset, self.q.device))
            stands = self.offset + first - low  # only distances count, so the keys of a strip begin at 0
            found = weigh(self.q[..., first:last, :], k[..., low:high, :], seen, stands, self.bias)
            yield Strip(slice(first, last), slice(low, high), found)

    def _put_together(self, strips: Iterator[Strip]) -> Tensor:
        """(B, H, T, S); 0 where no strip reaches."""
        batch, heads, queries, _ = self.q.shape
        shape = (batch, heads, queries, self.k.size(-2))
        whole = None
        for strip in strips:
            if strip.found.shape == shape:
                return strip.found
            whole = self.q.new_empty(shape) if whole is None else whole
            rows = whole[..., strip.queries, :]
            rows[..., : strip.keys.start] = rows[..., strip.keys.stop :] = 0.0
            rows[..., strip.keys] = strip.found
        return self.q.new_empty(shape) if whole is None else whole


@dataclass(frozen=True)
class Strip:
    """What was found for some queries over some keys."""

    queries: slice
    keys: slice
    found: Tensor  # (B, H, queries, keys)


def softmax_of_products(scale: float, q: Tensor, k: Tensor, mask: Mask, offset: int, bias: Bias | None) -> Tensor:
    """As `Explicit.weights` for dot products, with as little memory traffic as it takes.

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


@lru_cache(maxsize=4)  # every layer needs the same
def _lowest_above_diagonal(queries: int, keys: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(T, S): added to scores, it hides the keys from the diagonal on."""
    return torch.full((queries, keys), torch.finfo(dtype).min, dtype=dtype, device=device).triu_()


SEEN: dict[str, Callable[[AttentionCall], Tensor]] = {
    "weights": AttentionCall.weights,
    "scores": AttentionCall.scores,
    "visible": AttentionCall.visible,
    "query": lambda call: call.q,
    "key": lambda call: call.k,
    "value": lambda call: call.v,
    "mixed": lambda call: call.mixed,
}


def score_of(score: Score, heads: Sequence[int], count: int) -> Score:
    """A score for some of `count` heads; parameters with an axis for the heads, which comes first of three, are cut."""
    if not isinstance(score, nn.Module):
        return score
    own = {name: each[heads] for name, each in score.named_parameters() if each.dim() == 3 and len(each) == count}

    def score_these(q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = functional_call(score, own, (q, k))
        return scores

    return score_these


def bias_of(bias: Bias, heads: Sequence[int]) -> Bias:
    """What is added to the scores of some heads."""
    return lambda queries, keys: bias(queries, keys)[heads]
