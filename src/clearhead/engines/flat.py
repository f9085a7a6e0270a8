"""The engine `torch`: the steps of a Transformer in torch's operations, written flat, for where there is no compiler.

It does what the blocks of nn/ do, with less between the operations: no modules to call, queries, keys and values by one
product, caches that are written in place. Matrices are kept the other way round, (in, out): for the few rows of a step
that is several times faster than (out, in).

    B rows, T new tokens, N = B T, S tokens seen, H heads, G key-value heads, K key size, V value size, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.engines.layout import (
    input_that_is_written,
    is_transformer_that_writes,
    stack_that_writes,
    unsupported,
)
from clearhead.engines.vectors import Vectors
from clearhead.models.assemble import smaller
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import AttentionWriter
from clearhead.nn import (
    AddNorm,
    DecoderBlock,
    FeedForward,
    Mask,
    MultiHeadAttention,
    NormAdd,
    NormAddNorm,
    Rotary,
    SwiGLU,
)
from clearhead.nn.attention import Fused, fused_attention

ROOM = 16  # tokens that a cache begins with


class Product:
    """x W + b for several linear maps of the same x, whose outputs stand side by side."""

    def __init__(self, *parts: nn.Linear, scale: float = 1.0):
        """The outputs of the first part are scaled."""
        weights: list[Tensor] = [part.weight for part in parts]
        weights[0] = weights[0] * scale
        self.weight = torch.cat(weights).T.contiguous()  # (in, out)
        biases = [part.weight.new_zeros(part.out_features) if part.bias is None else part.bias for part in parts]
        has_bias = any(part.bias is not None for part in parts)
        self.bias = torch.cat([biases[0] * scale, *biases[1:]]) if has_bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in) -> (N, out)."""
        return x.mm(self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)


class Around:
    """Add & norm in its three placements: after(x + inside(part(before(x))))."""

    def __init__(self, residual: AddNorm):
        norm = _norm(residual.norm)
        self.before = norm if isinstance(residual, NormAdd | NormAddNorm) else _same
        self.inside = _norm(residual.outer_norm) if isinstance(residual, NormAddNorm) else _same
        self.after = _same if isinstance(residual, NormAdd | NormAddNorm) else norm


def _same(x: Tensor) -> Tensor:
    return x


def _norm(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """The function of a norm, with its weights."""
    if isinstance(norm, nn.LayerNorm):
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    return norm


@dataclass
class State:
    """What is known between two steps."""

    keys: list[Tensor]  # of each layer, (B, G, room, K)
    values: list[Tensor]  # of each layer, (B, G, room, V)
    across: list[tuple[Tensor, Tensor]]  # of each layer, keys (M, G, S, K) and values (M, G, S, V) of M sentences
    seen: Tensor | None  # (M, 1, 1, S) what of a sentence is real; none where all of it is
    sentence: list[int]  # B, which of the M a row is about: as many rows for each, in order
    window: int | None  # tokens that are looked back at
    length: int = 0  # tokens read
    first: int = 0  # the position of the first that is in the caches

    @property
    def held(self) -> int:
        """Tokens in the caches."""
        return self.length - self.first

    def make_room(self, rows: int, tokens: int) -> None:
        """For so many more; a text has one beginning for all its rows. What no window shows any more is forgotten."""
        if self.window is not None and self.held > 2 * self.window:
            self.keys, self.values = ([self._last(x, self.window) for x in each] for each in (self.keys, self.values))
            self.first = self.length - self.window
        have, _, room, _ = self.keys[0].shape
        if self.held + tokens > room or rows > have:
            room = max(room, 2 * (self.held + tokens))
            self.keys, self.values = ([self._longer(x, rows, room) for x in each] for each in (self.keys, self.values))

    def _last(self, cache: Tensor, count: int) -> Tensor:
        return cache[:, :, self.held - count : self.held].clone()

    def _longer(self, cache: Tensor, rows: int, room: int) -> Tensor:
        new = cache.new_empty(rows, cache.size(1), room, cache.size(3))
        new[:, :, : self.held] = cache[:, :, : self.held]
        return new

    def reordered(self, rows: Tensor) -> State:
        """Row i becomes what row rows[i] was; a sentence is only copied when another leaves."""
        keys, values = ([cache.index_select(0, rows) for cache in each] for each in (self.keys, self.values))
        new = replace(self, keys=keys, values=values)
        if not self.across:
            return new
        wanted = [self.sentence[row] for row in rows.tolist()]
        kept = list(dict.fromkeys(wanted))
        each, left = divmod(len(wanted), len(kept))
        if left or wanted != [sentence for sentence in kept for _ in range(each)]:
            kept, each = wanted, 1
        new.sentence = [number for number in range(len(kept)) for _ in range(each)]
        if kept != list(range(len(self.across[0][0]))):
            chosen = torch.tensor(kept, device=rows.device)
            new.across = [(k.index_select(0, chosen), v.index_select(0, chosen)) for k, v in self.across]
            new.seen = None if self.seen is None else self.seen.index_select(0, chosen)
        return new


class SelfAttention:
    """Queries, keys and values by one product; the past comes from the cache."""

    def __init__(self, layer: MultiHeadAttention):
        self.layer, self.output = layer, Product(layer.output)
        self.joined = Product(layer.query, layer.key, layer.value, scale=_scale(layer))
        self.sizes = [(layer.heads, layer.key_dim), (layer.kv_heads, layer.key_dim), (layer.kv_heads, layer.value_dim)]
        self.widths = [heads * size for heads, size in self.sizes]

    def __call__(self, x: Tensor, rows: int, number: int, state: State) -> Tensor:
        """(N, D) -> (N, D)."""
        held, parts = state.held, torch.split_with_sizes(self.joined(x), self.widths, dim=1)
        q, k, v = (part.view(rows, -1, *size).transpose(1, 2) for part, size in zip(parts, self.sizes, strict=True))
        if isinstance(self.layer.relative, Rotary):
            q, k = (self.layer.relative.rotate(part, state.length) for part in (q, k))
        keys, values = (self._extended(cache[number], new, held) for cache, new in ((state.keys, k), (state.values, v)))
        bias = self.layer.relative.bias
        if q.size(2) == 1 and bias is None and state.window is None:  # one token may see all of its past
            mixed = _looked(q, keys, values)
        else:
            mask = Mask(causal=True, window=state.window)
            mixed = fused_attention(q, keys, values, mask, scale=1.0, bias=bias, offset=held)
        return self.output(mixed.transpose(1, 2).reshape(len(x), -1))

    def _extended(self, cache: Tensor, new: Tensor, held: int) -> Tensor:
        """Put new keys or values (B, G, T, K) into a cache (B, G, room, K), and give all that it holds."""
        cache.narrow(2, held, new.size(2)).copy_(new)
        return cache.narrow(2, 0, held + new.size(2))


class CrossAttention:
    """Queries alone: keys and values of the source are there, and all rows of a sentence look at the same ones."""

    def __init__(self, layer: MultiHeadAttention):
        self.layer = layer
        self.query, self.output = Product(layer.query, scale=_scale(layer)), Product(layer.output)

    def __call__(self, x: Tensor, _rows: int, number: int, state: State) -> Tensor:
        """(N, D) -> (N, D)."""
        keys, values = state.across[number]
        q = self.query(x).view(len(keys), -1, self.layer.heads, self.layer.key_dim).transpose(1, 2)
        mixed = _looked(q, keys, values) if state.seen is None else _partly(q, keys, values, state.seen)
        return self.output(mixed.transpose(1, 2).reshape(len(x), -1))


def _scale(layer: MultiHeadAttention) -> float:
    """What scores are multiplied with: queries are, once and for all."""
    assert isinstance(layer.kernel, Fused)
    scale = layer.kernel.scales[layer.kernel.score]
    return layer.key_dim**-0.5 if scale is None else scale


def _looked(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """q (B, H, T, K), scaled, sees all -> (B, H, T, V). For so few queries products are faster than a fused kernel."""
    rows, heads, tokens, _ = q.shape
    pairs = rows * keys.size(1)
    scores = torch.bmm(q.reshape(pairs, -1, q.size(3)), keys.flatten(0, 1).mT)  # (B G, H / G T, S)
    return torch.bmm(scores.softmax(-1), values.flatten(0, 1)).view(rows, heads, tokens, -1)


def _partly(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """The same, where only some may be seen, (B, 1, 1, S)."""
    return fused_attention(q, keys, values, seen, scale=1.0)


class Feed:
    """The feed-forward part."""

    def __init__(self, part: FeedForward | SwiGLU):
        self.gated = isinstance(part, SwiGLU)
        self.inner = Product(part.gate, part.inner) if isinstance(part, SwiGLU) else Product(part.inner)
        self.activation = F.silu if isinstance(part, SwiGLU) else part.activation
        self.outer = Product(part.outer)

    def __call__(self, x: Tensor, _rows: int, _number: int, _state: State) -> Tensor:
        """(N, D) -> (N, D)."""
        inner = self.inner(x)
        if not self.gated:
            return self.outer(self.activation(inner))
        gate, inner = inner.chunk(2, dim=1)
        return self.outer(self.activation(gate) * inner)


Part = SelfAttention | CrossAttention | Feed  # (N, D), rows, number of the layer, state -> (N, D)


class Flat:
    """A model whose steps are flat; a Stepper like the model itself."""

    def __init__(self, network: AttentionWriter | LanguageModel):
        self.network = network
        self.stack = stack_that_writes(network)
        self.vectors = Vectors(input_that_is_written(network), concatenated=network.config.position_concat)
        with torch.inference_mode():
            self.blocks = [_parts(block) for block in self.stack.blocks]
            self.norm, self.output = _norm(self.stack.norm), Product(network.output.linear)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of the model."""
        return self.network.parameters()

    @torch.inference_mode()
    def start(self, *source: Tensor, window: int | None = None) -> State:
        """Read the source, if there is one, ready to write; `window` as a language model takes it."""
        rows, across, seen = 1, [], None
        if isinstance(self.network, AttentionWriter):
            memory, real = self.network.encode(*source)  # (B, S, D), (B, 1, S)
            rows, seen = len(memory), None if real.all() else real.unsqueeze(1)
            layers = [block.cross_attention for block in self.network.decoder.blocks]
            across = [_contiguous(*layer.keys_and_values(memory)) for layer in layers]  # type: ignore[union-attr, operator]
        one: MultiHeadAttention = self.stack.blocks[0].self_attention  # type: ignore[assignment]
        shape, new = (rows, one.kv_heads, ROOM), self.output.weight.new_empty
        keys, values = ([new(*shape, size) for _ in self.blocks] for size in (one.key_dim, one.value_dim))
        return State(keys, values, across, seen, list(range(rows)), smaller(self.network.config.window, window))

    @torch.inference_mode()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        rows, tokens = ids.shape
        state.make_room(rows, tokens)
        x = self.vectors.of(ids, state.length).view(rows * tokens, -1)
        for number, block in enumerate(self.blocks):
            for around, part in block:
                x = around.after(x + around.inside(part(around.before(x), rows, number, state)))
        state.length += tokens
        return self.output(self.norm(x)).view(rows, tokens, -1), state

    def reorder(self, state: State, rows: Tensor) -> State:
        """Row i becomes what row rows[i] was."""
        return state.reordered(rows)


def _contiguous(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return keys.contiguous(), values.contiguous()


def _parts(block: nn.Module) -> list[tuple[Around, Part]]:
    """The parts of a block in their order, each with what is around it."""
    parts: list[Part] = [SelfAttention(block.self_attention)]  # type: ignore[arg-type]
    around = [block.residual1, block.residual2]
    if isinstance(block, DecoderBlock):
        parts.append(CrossAttention(block.cross_attention))
        around.append(block.residual3)
    parts.append(Feed(block.feed_forward))  # type: ignore[arg-type]
    return [(Around(each), part) for each, part in zip(around, parts, strict=True)]  # type: ignore[arg-type]


def flat(network: Any) -> Any:
    """A network in flat steps, with the weights that it has now; or the network itself, if it has parts of its own."""
    return Flat(network) if can_be_flat(network) else network


def can_be_flat(network: object) -> bool:
    """Whether this engine has all parts of a network."""
    return is_transformer_that_writes(network) and not [*unsupported(stack_that_writes(network))]
