"""One token of every row through all blocks, in torch's operations, with as little between them as possible.

Queries, keys and values come from one product, caches are written in place, and matrices are kept the other way round,
(in, out): for the few rows of a step that is several times faster than (out, in). The whole way is one function of
TorchScript, which calls an operation in half the time that Python needs; without TorchScript it is the same function
in Python.

    B rows about M sentences, S tokens seen, H heads, G key-value heads, K key size, V value size, D width
"""

import warnings  # no `from __future__ import annotations` here: TorchScript reads the annotations themselves
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.nn import DecoderBlock, MultiHeadAttention, Residual
from clearhead.nn.attention import share_heads
from clearhead.nn.native import FeedForwardForm
from clearhead.nn.positions import apply_rotary
from clearhead.nn.scores import dot_scale


class Past(NamedTuple):
    """What the layers have seen of the text itself; lists have one for each, or none where there is no such thing.

    The new token becomes the last.
    """

    keys: list[Tensor]  # (B, G, room, K)
    values: list[Tensor]  # (B, G, room, V)
    first: int  # place that is seen
    last: int
    turns: list[Tensor]  # (2, K): cosines and sines of the last place
    biases: list[Tensor]  # (H, S): what is added to the scores


class Across(NamedTuple):
    """The M sentences that are looked at: their keys and values, or these and the matrices around them in one."""

    keys: list[Tensor]  # of each layer, (M, G, S, K), or joined (M, D, H S); none in a language model
    values: list[Tensor]  # of each layer, (M, G, S, V), or joined (M, H S, D)
    added: list[Tensor]  # of each layer, what joined keys are added to, (M, 1, H S); none where they are not joined
    hidden: Tensor | None  # (M, 1, S): -inf where a sentence has ended; none where all are as long


def some_of(across: Across, sentences: Tensor) -> Across:
    """Some sentences, in this order."""
    hidden = across.hidden
    return Across(
        [each.index_select(0, sentences) for each in across.keys],
        [each.index_select(0, sentences) for each in across.values],
        [each.index_select(0, sentences) for each in across.added],
        None if hidden is None else hidden.index_select(0, sentences),
    )


class Product(nn.Module):
    """x W + b for several linear maps of the same x, whose outputs stand side by side."""

    def __init__(self, *parts: nn.Linear, scale: float = 1.0):
        """The outputs of the first part are scaled."""
        super().__init__()
        weights: list[Tensor] = [part.weight for part in parts]
        weights[0] = weights[0] * scale
        self.weight = torch.cat(weights).T.contiguous()  # (in, out)
        biases = [part.weight.new_zeros(part.out_features) if part.bias is None else part.bias for part in parts]
        has_bias = any(part.bias is not None for part in parts)
        self.bias = torch.cat([biases[0] * scale, *biases[1:]]) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) -> (B, out)."""
        bias = self.bias
        return x.mm(self.weight) if bias is None else torch.addmm(bias, x, self.weight)


class Around(nn.Module):
    """Add & norm in its three placements: after(x + inside(part(before(x))))."""

    def __init__(self, residual: Residual):
        super().__init__()
        form = residual.native_form()
        assert form is not None
        self.before, self.inside, self.after = (
            nn.Identity() if norm is None else norm for norm in (form.before, form.inside, form.after)
        )


class SelfAttention(nn.Module):
    """Queries, keys and values by one product; the past comes from the cache."""

    def __init__(self, layer: MultiHeadAttention):
        super().__init__()
        self.heads, self.groups, self.key_dim, self.value_dim = (
            layer.heads,
            layer.kv_heads,
            layer.key_dim,
            layer.value_dim,
        )
        self.project = Product(layer.query, layer.key, layer.value, scale=_scale(layer))
        self.output = Product(layer.output)
        self.widths = [self.heads * self.key_dim, self.groups * self.key_dim, self.groups * self.value_dim]

    def forward(self, x: Tensor, past: Past, number: int) -> Tensor:
        """(B, D) -> (B, D)."""
        keys, values, first, last = past.keys[number], past.values[number], past.first, past.last
        rows, seen = x.size(0), last + 1 - first
        q, k, v = torch.split_with_sizes(self.project(x), self.widths, dim=1)
        q, k = q.view(rows, self.heads, self.key_dim), k.view(rows, self.groups, self.key_dim)
        if len(past.turns) > 0:
            turn = past.turns[number]
            q, k = apply_rotary(q, turn[0], turn[1]), apply_rotary(k, turn[0], turn[1])
        keys.select(2, last).copy_(k)
        values.select(2, last).copy_(v.view(rows, self.groups, self.value_dim))
        pairs = rows * self.groups
        known = keys.narrow(2, first, seen).view(pairs, seen, self.key_dim).transpose(1, 2)
        scores = torch.bmm(q.reshape(pairs, -1, self.key_dim), known)  # (B G, H / G, S)
        if len(past.biases) > 0:
            scores = (scores.view(rows, self.heads, seen) + past.biases[number]).view(pairs, -1, seen)
        mixed = torch.bmm(scores.softmax(-1), values.narrow(2, first, seen).view(pairs, seen, self.value_dim))
        return self.output(mixed.view(rows, -1))


class CrossAttention(nn.Module):
    """Queries alone: keys and values of the source are there, and all rows of a sentence look at the same ones."""

    def __init__(self, layer: MultiHeadAttention):
        super().__init__()
        self.heads, self.key_dim = layer.heads, layer.key_dim
        self.query, self.output = Product(layer.query, scale=_scale(layer)), Product(layer.output)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
        """(B, D) -> (B, D); keys (M, G, S, K), values (M, G, S, V); `hidden` (M, 1, S) is added to the scores."""
        sentences, groups, seen = keys.size(0), keys.size(1), keys.size(2)
        q = self.query(x).view(sentences, -1, self.heads, self.key_dim).transpose(1, 2)  # (M, H, B / M, K)
        scores = torch.bmm(q.reshape(sentences * groups, -1, self.key_dim), keys.flatten(0, 1).transpose(1, 2))
        if hidden is not None:
            scores = (scores.view(sentences, -1, seen) + hidden).view(sentences * groups, -1, seen)
        mixed = torch.bmm(scores.softmax(-1), values.flatten(0, 1))  # (M G, H / G B / M, V)
        mixed = mixed.view(sentences, self.heads, -1, values.size(3)).transpose(1, 2)
        return self.output(mixed.reshape(x.size(0), -1))

    def join(self, keys: Tensor, values: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Keys (M, G, S, K) and values (M, G, S, V), and the matrices before and after them, once and for all.

        x (W_Q Kᵀ) instead of (x W_Q) Kᵀ: for short sentences that is less to multiply. Gives what `joined` takes.
        """
        keys, values = share_heads(keys, self.heads), share_heads(values, self.heads)
        query = self.query.weight.view(-1, self.heads, self.key_dim)  # (D, H, K)
        output = self.output.weight.view(self.heads, values.size(3), -1)  # (H, V, D)
        bias = query.new_zeros(query.shape[1:]) if self.query.bias is None else self.query.bias.view(query.shape[1:])
        added = torch.einsum("hk,mhsk->mhs", bias, keys)
        added = added if hidden is None else added + hidden
        return (
            torch.einsum("dhk,mhsk->mdhs", query, keys).flatten(2),
            torch.einsum("mhsv,hvd->mhsd", values, output).flatten(1, 2),
            added.flatten(1).unsqueeze(1),
        )

    def joined(self, x: Tensor, keys: Tensor, values: Tensor, added: Tensor) -> Tensor:
        """(B, D) -> (B, D) with keys (M, D, H S), values (M, H S, D) and what is added to the scores, (M, 1, H S)."""
        sentences, wide = keys.size(0), keys.size(2)
        scores = torch.baddbmm(added, x.view(sentences, -1, x.size(1)), keys)  # (M, B / M, H S)
        weights = scores.view(sentences, -1, wide // self.heads).softmax(-1).view(sentences, -1, wide)
        mixed, bias = torch.bmm(weights, values).view(x.size(0), -1), self.output.bias
        return mixed if bias is None else mixed + bias


def _scale(layer: MultiHeadAttention) -> float:
    """What scores are multiplied with: queries are, once and for all."""
    scale = dot_scale(layer.kernel.score, layer.key_dim)
    assert scale is not None
    return scale


class Feed(nn.Module):
    """Linear, nonlinearity, linear."""

    def __init__(self, part: FeedForwardForm):
        super().__init__()
        self.inner, self.outer = Product(part.inner), Product(part.outer)
        self.activation = nn.ReLU() if part.activation == "relu" else nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        return self.outer(self.activation(self.inner(x)))


class GatedFeed(nn.Module):
    """Gate and inner layer by one product."""

    def __init__(self, part: FeedForwardForm):
        super().__init__()
        assert part.gate is not None
        self.inner, self.outer = Product(part.gate, part.inner), Product(part.outer)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        gate, inner = self.inner(x).chunk(2, dim=1)
        return self.outer(F.silu(gate) * inner)


class NoCross(nn.Module):
    """Of a language model, which looks at nothing but its own text."""

    def forward(self, x: Tensor, _across: Across, _number: int) -> Tensor:
        """The same."""
        return x


class Cross(nn.Module):
    """Cross-attention and what is around it."""

    def __init__(self, block: DecoderBlock):
        super().__init__()
        self.around, self.attention = Around(block.residual2), CrossAttention(block.cross_attention)

    def forward(self, x: Tensor, across: Across, number: int) -> Tensor:
        """(B, D) -> (B, D)."""
        keys, values, inner = across.keys[number], across.values[number], self.around.before(x)
        if len(across.added) > 0:
            mixed = self.attention.joined(inner, keys, values, across.added[number])
        else:
            mixed = self.attention(inner, keys, values, across.hidden)
        return self.around.after(x + self.around.inside(mixed))


class Block(nn.Module):
    """One block."""

    def __init__(self, block: Any):
        super().__init__()
        is_decoder = isinstance(block, DecoderBlock)
        self.around_self, self.attention = Around(block.residual1), SelfAttention(block.self_attention)
        self.cross = Cross(block) if is_decoder else NoCross()
        self.around_feed = Around(block.residual3 if is_decoder else block.residual2)
        part = block.feed_forward.native_form()
        self.feed = Feed(part) if part.gate is None else GatedFeed(part)

    def forward(self, x: Tensor, past: Past, across: Across, number: int) -> Tensor:
        """(B, D) -> (B, D)."""
        return self.rest(x, self.attention(self.around_self.before(x), past, number), across, number)

    def rest(self, x: Tensor, mixed: Tensor, across: Across, number: int) -> Tensor:
        """x (B, D), and what self-attention made of it -> (B, D)."""
        x = self.around_self.after(x + self.around_self.inside(mixed))
        x = self.cross(x, across, number)
        return self.around_feed.after(x + self.around_feed.inside(self.feed(self.around_feed.before(x))))


class Token(nn.Module):
    """All blocks, and the output."""

    def __init__(self, stack: Any, output: nn.Linear):
        super().__init__()
        self.blocks = nn.ModuleList(Block(block) for block in stack.blocks)
        self.norm, self.output = stack.norm, Product(output)

    def forward(self, x: Tensor, past: Past, across: Across) -> Tensor:
        """(B, D) -> logits (B, V)."""
        for number, block in enumerate(self.blocks):
            x = block(x, past, across, number)
        return self.output(self.norm(x))

    @torch.jit.export
    def write_greedily(
        self,
        ids: Tensor,
        limits: Tensor,
        stop: int,
        table: Tensor,
        scale: float,
        places: Tensor,
        keys: list[Tensor],
        values: list[Tensor],
        last: int,
        across: Across,
    ) -> Tensor:
        """The likeliest tokens after ids (B,), up to the limits (B,): (B, N), the stops too; then -1.

        Tokens are rows of the table, scaled, with their places (P, D) added; what was read before ends at `last`. The
        caches have room for all, and each row is about a sentence of its own. A row that has ended leaves the batch.
        """
        rows = torch.arange(ids.size(0), device=ids.device)
        written = torch.full((ids.size(0), int(limits.max())), -1, device=ids.device)
        nothing: list[Tensor] = []
        step = 0
        while rows.size(0) > 0:
            x = torch.embedding(table, ids).mul_(scale) + places[last]
            ids = self.forward(x, Past(keys, values, 0, last, nothing, nothing), across).max(-1)[1]
            written[rows, step] = ids
            step, last = step + 1, last + 1
            going = (ids != stop) & (limits > step)
            if not bool(going.all()):
                kept = going.nonzero().squeeze(1)
                rows, ids, limits = rows[kept], ids[kept], limits[kept]
                keys = [each.index_select(0, kept) for each in keys]
                values = [each.index_select(0, kept) for each in values]
                across = some_of(across, kept)
        return written


def scripted(part: Any) -> Any:
    """A module or a function in TorchScript, or as it is where this Python or this torch has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return torch.jit.script(part)
        except (AttributeError, OSError, RuntimeError, TypeError, ValueError):  # whatever it lacks: a part, the source
            return part
