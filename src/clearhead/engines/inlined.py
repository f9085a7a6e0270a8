"""One token of every row through all blocks, in torch operations with as little between them as possible.

Queries, keys and values come from one product, caches are written in place, and matrices are stored transposed,
(in, out): for the few rows of a step that is several times faster than (out, in). All blocks are one TorchScript
function, which calls an operation in half the time that Python needs; without TorchScript the same function runs in
Python.

All parts map (B, D) -> (B, D):

    B rows about M sentences, S tokens seen, H heads, G key-value heads, K key size, V value size, D width
"""

import warnings  # no `from __future__ import annotations` here: TorchScript reads the annotations themselves
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import clearhead.nn as parts
from clearhead.nn import DecoderBlock, MultiHeadAttention
from clearhead.nn.attention import share_heads
from clearhead.nn.feedforward import FeedForwardForm
from clearhead.nn.positions import apply_rotary
from clearhead.nn.scores import dot_scale


class SelfKV(NamedTuple):
    """The self-attention cache; lists have one entry per layer, or none where the model has no such thing."""

    keys: list[Tensor]  # (B, G, room, K)
    values: list[Tensor]  # (B, G, room, V)
    first: int  # index of the first visible token
    last: int  # index of the new token
    rotations: list[Tensor]  # (2, K): cosines and sines of the new token's position
    biases: list[Tensor]  # (H, S): added to the scores


class CrossKV(NamedTuple):
    """Keys and values of the M sources, or their products with the matrices around them (`CrossAttention.join`)."""

    keys: list[Tensor]  # of each layer, (M, G, S, K), or joined (M, D, H S); none in a language model
    values: list[Tensor]  # of each layer, (M, G, S, V), or joined (M, H S, D)
    added: list[Tensor]  # of each layer, the bias of joined keys, (M, 1, H S); empty where they are not joined
    hidden: Tensor | None  # (M, 1, S): -inf at padding; None where all sources are equally long


def select_sources(source: CrossKV, sentences: Tensor) -> CrossKV:
    """Some of the sources, in this order."""
    hidden = source.hidden
    return CrossKV(
        [each.index_select(0, sentences) for each in source.keys],
        [each.index_select(0, sentences) for each in source.values],
        [each.index_select(0, sentences) for each in source.added],
        None if hidden is None else hidden.index_select(0, sentences),
    )


class FusedLinear(nn.Module):
    """x W + b for several linear maps of the same x, their outputs side by side."""

    def __init__(self, *parts: nn.Linear, scale: float = 1.0):
        """`scale` multiplies the outputs of the first part."""
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


class Residual(nn.Module):
    """The residual connection in its three norm placements: after(x + inside(sublayer(before(x))))."""

    def __init__(self, residual: parts.Residual):
        super().__init__()
        form = residual.native_form()
        assert form is not None
        self.before, self.inside, self.after = (
            nn.Identity() if norm is None else norm for norm in (form.before, form.inside, form.after)
        )


class SelfAttention(nn.Module):
    """Queries, keys and values by one product; earlier ones come from the cache."""

    def __init__(self, layer: MultiHeadAttention):
        super().__init__()
        self.heads, self.groups = layer.heads, layer.kv_heads
        self.key_dim, self.value_dim = layer.key_dim, layer.value_dim
        self.project = FusedLinear(layer.query, layer.key, layer.value, scale=_scale(layer))
        self.output = FusedLinear(layer.output)
        self.widths = [self.heads * self.key_dim, self.groups * self.key_dim, self.groups * self.value_dim]

    def forward(self, x: Tensor, cache: SelfKV, number: int) -> Tensor:
        keys, values, first, last = cache.keys[number], cache.values[number], cache.first, cache.last
        rows, seen = x.size(0), last + 1 - first
        q, k, v = torch.split_with_sizes(self.project(x), self.widths, dim=1)
        q, k = q.view(rows, self.heads, self.key_dim), k.view(rows, self.groups, self.key_dim)
        if len(cache.rotations) > 0:
            rotation = cache.rotations[number]
            q, k = apply_rotary(q, rotation[0], rotation[1]), apply_rotary(k, rotation[0], rotation[1])
        keys.select(2, last).copy_(k)
        values.select(2, last).copy_(v.view(rows, self.groups, self.value_dim))
        pairs = rows * self.groups
        known = keys.narrow(2, first, seen).view(pairs, seen, self.key_dim).transpose(1, 2)
        scores = torch.bmm(q.reshape(pairs, -1, self.key_dim), known)  # (B G, H / G, S)
        if len(cache.biases) > 0:
            scores = (scores.view(rows, self.heads, seen) + cache.biases[number]).view(pairs, -1, seen)
        mixed = torch.bmm(scores.softmax(-1), values.narrow(2, first, seen).view(pairs, seen, self.value_dim))
        return self.output(mixed.view(rows, -1))


class CrossAttention(nn.Module):
    """Queries alone: keys and values of the source are known, and all rows of a source share them."""

    def __init__(self, layer: MultiHeadAttention):
        super().__init__()
        self.heads, self.key_dim = layer.heads, layer.key_dim
        self.query, self.output = FusedLinear(layer.query, scale=_scale(layer)), FusedLinear(layer.output)

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
        """Keys (M, G, S, K) and values (M, G, S, V), multiplied with the matrices before and after them.

        x (W_Q Kᵀ) instead of (x W_Q) Kᵀ: for short sources that is less to multiply. Returns the arguments of `joined`.
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
        """(B, D) -> (B, D) with keys (M, D, H S), values (M, H S, D) and a bias of the scores, (M, 1, H S)."""
        sentences, wide = keys.size(0), keys.size(2)
        scores = torch.baddbmm(added, x.view(sentences, -1, x.size(1)), keys)  # (M, B / M, H S)
        weights = scores.view(sentences, -1, wide // self.heads).softmax(-1).view(sentences, -1, wide)
        mixed, bias = torch.bmm(weights, values).view(x.size(0), -1), self.output.bias
        return mixed if bias is None else mixed + bias


def _scale(layer: MultiHeadAttention) -> float:
    """The scale of the scores, which is multiplied into the query weights."""
    scale = dot_scale(layer.kernel.score, layer.key_dim)
    assert scale is not None
    return scale


class FeedForwardLayer(nn.Module):
    """Linear, nonlinearity, linear."""

    def __init__(self, part: FeedForwardForm):
        super().__init__()
        self.inner, self.outer = FusedLinear(part.inner), FusedLinear(part.outer)
        self.activation = nn.ReLU() if part.activation == "relu" else nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))


class GatedFeedForward(nn.Module):
    """Gate and inner layer by one product."""

    def __init__(self, part: FeedForwardForm):
        super().__init__()
        assert part.gate is not None
        self.inner, self.outer = FusedLinear(part.gate, part.inner), FusedLinear(part.outer)

    def forward(self, x: Tensor) -> Tensor:
        gate, inner = self.inner(x).chunk(2, dim=1)
        return self.outer(F.silu(gate) * inner)


class NoCross(nn.Module):
    """The cross-attention of a language model, which has none."""

    def forward(self, x: Tensor, _across: CrossKV, _number: int) -> Tensor:
        return x


class Cross(nn.Module):
    """Cross-attention with its residual connection."""

    def __init__(self, block: DecoderBlock):
        super().__init__()
        self.residual, self.attention = Residual(block.residual2), CrossAttention(block.cross_attention)

    def forward(self, x: Tensor, source: CrossKV, number: int) -> Tensor:
        keys, values, inner = source.keys[number], source.values[number], self.residual.before(x)
        if len(source.added) > 0:
            mixed = self.attention.joined(inner, keys, values, source.added[number])
        else:
            mixed = self.attention(inner, keys, values, source.hidden)
        return self.residual.after(x + self.residual.inside(mixed))


class Block(nn.Module):
    """One block."""

    def __init__(self, block: Any):
        super().__init__()
        is_decoder = isinstance(block, DecoderBlock)
        self.residual_self, self.attention = Residual(block.residual1), SelfAttention(block.self_attention)
        self.cross = Cross(block) if is_decoder else NoCross()
        self.residual_feed_forward = Residual(block.residual3 if is_decoder else block.residual2)
        part = block.feed_forward.native_form()
        self.feed_forward = FeedForwardLayer(part) if part.gate is None else GatedFeedForward(part)

    def forward(self, x: Tensor, cache: SelfKV, source: CrossKV, number: int) -> Tensor:
        return self.rest(x, self.attention(self.residual_self.before(x), cache, number), source, number)

    def rest(self, x: Tensor, mixed: Tensor, source: CrossKV, number: int) -> Tensor:
        """x (B, D) and the output of self-attention (B, D) -> (B, D)."""
        x = self.residual_self.after(x + self.residual_self.inside(mixed))
        x = self.cross(x, source, number)
        return self.residual_feed_forward.after(
            x + self.residual_feed_forward.inside(self.feed_forward(self.residual_feed_forward.before(x)))
        )


class InlinedStack(nn.Module):
    """All blocks and the output projection."""

    def __init__(self, stack: Any, output: nn.Linear):
        super().__init__()
        self.blocks = nn.ModuleList(Block(block) for block in stack.blocks)
        self.norm, self.output = stack.norm, FusedLinear(output)

    def forward(self, x: Tensor, cache: SelfKV, source: CrossKV) -> Tensor:
        """(B, D) -> logits (B, V)."""
        for number, block in enumerate(self.blocks):
            x = block(x, cache, source, number)
        return self.output(self.norm(x))

    @torch.jit.export
    def generate_greedily(
        self,
        ids: Tensor,
        limits: Tensor,
        stop: int,
        table: Tensor,
        scale: float,
        positions: Tensor,
        keys: list[Tensor],
        values: list[Tensor],
        last: int,
        source: CrossKV,
    ) -> Tensor:
        """The most likely tokens after ids (B,), up to the limits (B,): (B, N), the stop tokens included; then -1.

        Tokens are rows of the table, scaled, plus their positions (P, D); the caches end before `last` and have room
        for all tokens. Each row has its own source. A row that has ended leaves the batch.
        """
        rows = torch.arange(ids.size(0), device=ids.device)
        generated = torch.full((ids.size(0), int(limits.max())), -1, device=ids.device)
        empty: list[Tensor] = []
        step = 0
        while rows.size(0) > 0:
            x = torch.embedding(table, ids).mul_(scale) + positions[last]
            ids = self.forward(x, SelfKV(keys, values, 0, last, empty, empty), source).max(-1)[1]
            generated[rows, step] = ids
            step, last = step + 1, last + 1
            going = (ids != stop) & (limits > step)
            if not bool(going.all()):
                kept = going.nonzero().squeeze(1)
                rows, ids, limits = rows[kept], ids[kept], limits[kept]
                keys = [each.index_select(0, kept) for each in keys]
                values = [each.index_select(0, kept) for each in values]
                source = select_sources(source, kept)
        return generated


def scripted(part: Any) -> Any:
    """A module or a function in TorchScript, or as it is where TorchScript cannot compile it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return torch.jit.script(part)
        except (AttributeError, OSError, RuntimeError, TypeError, ValueError):  # an unsupported part, or no source code
            return part
