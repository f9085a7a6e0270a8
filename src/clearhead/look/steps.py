"""One query's attention as the lectures teach it: a recorded sequence of steps, each with its numbers.

score -> scale -> mask -> softmax -> weight -> sum

S keys, D key size, V value size
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from clearhead.nn.attention import softmax
from clearhead.nn.masks import additive
from clearhead.nn.scores import Score, dot, scaled_dot


@dataclass(frozen=True)
class Step:
    """One step: its name in the lectures, its equation, and what came out."""

    name: str
    equation: str
    value: Tensor


def attention_steps(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, score: Score = scaled_dot
) -> list[Step]:
    """query (D,), keys (S, D), values (S, V), mask (S,) -> the steps; the last one's value is the output (V,)."""
    steps = _score_steps(query, keys, score)
    if mask is not None:
        masked = steps[-1].value + additive(mask, query.dtype)
        steps.append(Step("mask", "s_j + L_j,  L_j = 0 where key j may be seen, -∞ where not", masked))
    weights = softmax(steps[-1].value, mask)  # (S,)
    weighted = weights.unsqueeze(-1) * values  # (S, V)
    return [
        *steps,
        Step("softmax", "a_j = exp(s_j) / Σ_t exp(s_t)", weights),
        Step("weight", "a_j v_j", weighted),
        Step("sum", "z = Σ_j a_j v_j", weighted.sum(0)),
    ]


def _score_steps(query: Tensor, keys: Tensor, score: Score) -> list[Step]:
    """The scaled dot product is shown as two steps, every other score as one."""
    if score is not scaled_dot:
        return [Step("score", "s_j = score(q, k_j)", score(query.unsqueeze(0), keys).squeeze(0))]
    products = dot(query.unsqueeze(0), keys).squeeze(0)  # (S,)
    return [
        Step("score", "q · k_j", products),
        Step("scale", f"s_j = q · k_j / √d_k,  d_k = {len(query)}", products / math.sqrt(len(query))),
    ]
