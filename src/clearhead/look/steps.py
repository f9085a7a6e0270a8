"""One query's attention as the lectures teach it: a recorded sequence of steps, each with its numbers.

    score -> scale -> mask -> softmax -> weight -> sum -> heads combined -> add & norm -> feed-forward -> add & norm

The first six are those of one head, the others of the whole block. Scores that are no scaled dot product have no scale,
positions inside the heads add a step of their own, and in a decoder's block cross-attention may stand in between. Each
step names the file and line of this package whose equation it is.

    H heads, S keys, D key size, V value size
"""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.look.look import Attended, Look
from clearhead.look.probes import stacks
from clearhead.look.storing import rounded
from clearhead.models.rnn import AttentionDecoder
from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
    Explicit,
    MultiHeadAttention,
    Residual,
    additive,
    attention,
    dot,
    pick_one,
    scaled_dot,
    softmax,
)
from clearhead.nn.attention import Normalize, join_heads
from clearhead.nn.scores import Score, score_equation

FORMAT = "clearhead-steps-1"
PACKAGE = Path(__file__).parents[1]

Code = tuple[Callable[..., Any], str]  # a function, and what the line in it says


@dataclass(frozen=True)
class Step:
    """One step: its name in the lectures, its equation, what came out, and where the equation stands."""

    name: str
    equation: str
    value: Tensor
    labels: list[str] | None  # a word for each row of the value
    file: str  # relative to the package; that of a score of yours is where you keep it
    line: int

    @property
    def source(self) -> str:
        """The line itself."""
        return linecache.getline(str(PACKAGE / self.file), self.line).strip()

    def to_json(self) -> dict[str, Any]:
        """As the views read it; a masked score, which is -∞, is null."""
        return {
            "name": self.name,
            "equation": self.equation,
            "value": _plain(self.value),
            "shape": list(self.value.shape),
            "labels": self.labels,
            "file": self.file,
            "line": self.line,
            "source": self.source,
        }


@dataclass(frozen=True)
class Steps:
    """What one query of one head went through in one layer."""

    kind: str
    layer: int
    head: int
    query: int
    steps: list[Step]
    rows: list[str] = field(default_factory=list)  # the words of the queries
    columns: list[str] = field(default_factory=list)  # the words of the keys

    def __getitem__(self, name: str) -> Tensor:
        """The value of the last step of this name."""
        return {step.name: step.value for step in self.steps}[name]

    def to_json(self) -> dict[str, Any]:
        """As the views read it."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "layer": self.layer,
            "head": self.head,
            "query": self.query,
            "rows": self.rows,
            "columns": self.columns,
            "steps": [step.to_json() for step in self.steps],
        }


@torch.no_grad()
def steps(look: Look, layer: int, head: int, query: int, kind: str | None = None) -> Steps:
    """The steps of a query that was looked at; where its network is not known, they end with one head's sum."""
    kind = look.kind(kind)
    seen = look.pick(kind, layer, head, query)
    stack = None if look.network is None else stacks(look.network).get(kind.split(".")[0])
    asked = _Asked.of(seen, layer, head, query)
    match stack:
        case Encoder() | Decoder():
            block: Any = stack.blocks[layer]
            own = block.cross_attention if kind == "decoder.cross" else block.self_attention
            found = [*_head_steps(_through_layer(asked, own, query)), *_block_steps(look, block, kind, layer, query)]
        case AttentionDecoder():
            aligned = replace(asked, score=stack.score, normalize=stack.normalize)
            found = [*_head_steps(aligned), _state_step(look, query)]
        case _:
            found = _head_steps(_as_seen(asked, seen.scores[layer][head, query], seen.weights[layer][head, query]))
    return Steps(kind, layer, head, query, found, seen.rows, seen.columns)


def attention_steps(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, score: Score = scaled_dot
) -> list[Step]:
    """query (D,), keys (S, D), values (S, V), mask (S,) -> the steps; the last one's value is the output (V,)."""
    return _head_steps(_Asked(query[None, None], keys[None], values, 0, mask, score))


# --- one head ---


@dataclass(frozen=True)
class _Asked:
    """One query of one head, and what its attention is made of."""

    query: Tensor  # (H, 1, D), of all heads: a score may have parameters for each
    keys: Tensor  # (H, S, D)
    values: Tensor  # (S, V), of this head
    head: int
    mask: Tensor | None = None  # (S,), where anything is hidden from any query
    score: Score = scaled_dot
    normalize: Normalize = softmax
    bias: Tensor | None = None  # (S,) what the distance adds
    scores: Tensor | None = None  # (S,) where only they are known, and no score that gives them
    weights: Tensor | None = None  # (S,) likewise
    labels: list[str] | None = None
    adding: Code = (attention, "scores + bias")
    mixing: Code = (attention, "weights @ v")

    @classmethod
    def of(cls, seen: Attended, layer: int, head: int, query: int) -> _Asked:
        """A query that was looked at."""
        mask = None if seen.visible.all() else seen.visible[query]
        q, k, v = seen.query[layer][:, query : query + 1], seen.key[layer], seen.value[layer][head]
        return cls(q, k, v, head, mask, labels=seen.columns)


def _through_layer(asked: _Asked, layer: MultiHeadAttention, query: int) -> _Asked:
    """The same with the parts of a layer, whose explicit path is the equation."""
    equation, bias = layer.kernel.explicit(), None
    if layer.relative.bias is not None:
        places = torch.arange(asked.keys.size(-2), device=asked.keys.device)
        bias = layer.relative.bias(places[query : query + 1], places)[asked.head, 0]  # (S,)
    return replace(
        asked,
        score=equation.score,
        normalize=equation.normalize,
        bias=bias,
        adding=(Explicit.weights, "scores + added"),
        mixing=(Explicit.forward, "share_heads(v"),
    )


def _as_seen(asked: _Asked, scores: Tensor, weights: Tensor) -> _Asked:
    """The same where no network is known: a scaled dot product, if that gives the scores (S,) that were seen."""
    fits = torch.allclose(scaled_dot(asked.query, asked.keys)[asked.head, 0], scores, rtol=1e-4, atol=1e-5)
    return replace(asked, scores=None if fits else scores, weights=weights)


def _head_steps(asked: _Asked) -> list[Step]:
    found = _score_steps(asked)
    if asked.bias is not None:
        equation = "s_j + b_j,  b_j from the distance between query and key"
        found.append(_step("position", equation, found[-1].value + asked.bias, asked.adding))
    scores, mask = found[-1].value, asked.mask
    if mask is not None:
        equation = "s_j + L_j,  L_j = 0 where key j may be seen, -∞ where not"
        found.append(_step("mask", equation, scores + additive(mask, scores.dtype), (softmax, "masked_fill")))
    weights = asked.normalize(scores, mask) if asked.weights is None else asked.weights  # (S,)
    weighted = weights.unsqueeze(-1) * asked.values  # (S, V)
    found += [_weigh_step(asked, weights), _step("weight", "a_j v_j", weighted, asked.mixing)]
    of_keys = [replace(step, labels=asked.labels) for step in found]
    return [*of_keys, _step("sum", "z = Σ_j a_j v_j", weighted.sum(0), asked.mixing)]


def _score_steps(asked: _Asked) -> list[Step]:
    """The scaled dot product is shown as two steps, every other score as one."""
    q, k, score = asked.query, asked.keys, asked.score
    if asked.scores is not None:
        return [_step("score", "s_j = score(q, k_j)", asked.scores, (Explicit.weights, "self.score("))]
    if score is not scaled_dot:
        text = score_equation(score) or "s_j = score(q, k_j)"
        return [_step("score", text, score(q, k)[asked.head, 0], _score_code(score))]
    products = dot(q, k)[asked.head, 0]  # (S,)
    scale = f"s_j = q · k_j / √d_k,  d_k = {q.size(-1)}"
    return [
        _step("score", "q · k_j", products, (dot, "return ")),
        _step("scale", scale, products / math.sqrt(q.size(-1)), (scaled_dot, "return ")),
    ]


def _score_code(score: Score) -> Code:
    """The line that gives the score; of a function of yours, the line at which it begins."""
    if isinstance(score, nn.Module):
        return type(score).forward, "return "
    if not inspect.isfunction(score):
        return Explicit.weights, "self.score("
    return score, "return " if score_equation(score) else ""


def _weigh_step(asked: _Asked, weights: Tensor) -> Step:
    if asked.normalize is pick_one:
        equation = "a_j = 1 for the key with the best score, 0 for the others"
        return _step("pick one", equation, weights, (pick_one, "hard = "))
    line = "scores.softmax" if asked.mask is None else "masked_fill"
    return _step("softmax", "a_j = exp(s_j) / Σ_t exp(s_t)", weights, (softmax, line))


# --- what is around it ---


def _state_step(look: Look, query: int) -> Step:
    """What a recurrent decoder makes of the context that it found."""
    state = look.hidden["decoder"][-1][query]
    return _step("state", "s_t = g(y_t, s_{t-1}, z)", state, (AttentionDecoder.align, "self.network("))


@dataclass(frozen=True)
class _Part:
    """A part of a block: what it computes from what it reads, and what it is wrapped in."""

    name: str
    equation: str
    compute: Callable[[Tensor], Tensor]
    residual: Residual
    code: Code


def _block_steps(look: Look, block: EncoderBlock | DecoderBlock, kind: str, layer: int, query: int) -> list[Step]:
    """From the heads of the attention that was asked for to what the block writes."""
    x = look.hidden[kind.split(".")[0]][layer][query]  # what the block reads of this token
    before = 1 if kind == "decoder.cross" else 0
    (own, output, x), *later = list(_walk(_parts(look, block, kind, layer, query), x))[before:]
    combined = _step("heads combined", own.equation, output, (MultiHeadAttention.forward, "self.output("))
    found = [combined, _add_norm_step(own.residual, x)]
    for part, output, x in later:
        found += [_step(part.name, part.equation, output, part.code), _add_norm_step(part.residual, x)]
    return found


def _walk(parts: list[_Part], x: Tensor) -> Iterator[tuple[_Part, Tensor, Tensor]]:
    """Each part, what it gave (D,), and what became of the token's vector x (D,)."""
    for part in parts:
        given: list[Tensor] = []

        def compute(y: Tensor, part: _Part = part, given: list[Tensor] = given) -> Tensor:
            given.append(part.compute(y))
            return given[0]

        x = part.residual(x.view(1, 1, -1), compute).flatten()
        yield part, given[0].flatten(), x


def _parts(look: Look, block: Any, kind: str, layer: int, query: int) -> list[_Part]:
    """In their order: self-attention, in a decoder's block cross-attention, feed-forward."""

    def attending(kind: str, own: MultiHeadAttention, residual: Residual) -> _Part:
        seen = look.attention[kind]
        mixed = seen.weights[layer][:, query : query + 1] @ seen.value[layer]  # (H, 1, V)
        output = own.output(join_heads(mixed[None]))  # (1, 1, D)
        code = DecoderBlock.forward, "self.cross_attention("
        return _Part("cross-attention", "z = [z_1 … z_H] W_O", lambda _: output, residual, code)

    own = attending(f"{kind.split('.')[0]}.self", block.self_attention, block.residual1)
    if isinstance(block, EncoderBlock):
        return [own, _feed_forward(block.feed_forward, block.residual2)]
    cross = attending("decoder.cross", block.cross_attention, block.residual2)
    return [own, cross, _feed_forward(block.feed_forward, block.residual3)]


def _feed_forward(network: nn.Module, residual: Residual) -> _Part:
    equation = f"z = {getattr(network, 'equation', 'FFN(y)')},  y = {residual.reads}"
    return _Part("feed-forward", equation, network, residual, (type(network).forward, "return "))


def _add_norm_step(residual: Residual, x: Tensor) -> Step:
    return _step("add & norm", f"x ← {residual.equation}", x, (type(residual).forward, "return "))


# --- where an equation stands ---


def _step(name: str, equation: str, value: Tensor, code: Code) -> Step:
    return Step(name, equation, value, None, *where(*code))


@cache
def where(function: Callable[..., Any], says: str) -> tuple[str, int]:
    """The file of a function, relative to the package, and its first line that says this."""
    lines, first = inspect.getsourcelines(function)
    file = Path(inspect.getsourcefile(function) or "")
    number = next(number for number, line in enumerate(lines) if says in line)
    inside = file.is_relative_to(PACKAGE)
    return (file.relative_to(PACKAGE) if inside else file).as_posix(), first + number


def _plain(value: Tensor) -> Any:
    """Nested lists; what is not finite is null, since JSON has no word for it."""
    if value.isfinite().all():
        return rounded(value)
    return [number if math.isfinite(number) else None for number in value.tolist()]
