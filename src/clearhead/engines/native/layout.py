"""Weights as native code reads them: the structures of clearhead.h, filled from modules of nn/.

A part describes itself to native code by its `native_form`, in plain numbers and matrices; without one it runs with
torch.

D width, H heads, G key-value heads, K key size, V value size
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.engines.native.library import Library
from clearhead.engines.native.memory import WeightMemory
from clearhead.models.build import TokenInput, TransformerDecoder
from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    FeedForwardLayer,
    MultiHeadAttention,
    NoNorm,
    ParallelBlock,
    RelativePositions,
    Residual,
)
from clearhead.nn.attention import Fused
from clearhead.nn.norm import NativeNorm
from clearhead.nn.scores import dot_scale

NORMS = {"none": 0, "layer": 1, "rms": 2}  # the codes of the C side
ACTIVATIONS = {("relu", False): 0, ("gelu", False): 1, ("silu", True): 2}  # activation, gated -> code


# --- the structures of clearhead.h ---


def _each(kind: type[ctypes._SimpleCData[Any]], *names: str) -> list[tuple[str, type[ctypes._SimpleCData[Any]]]]:
    return [(name, kind) for name in names]


class CLinear(ctypes.Structure):
    """y = x W + b."""

    _fields_ = (
        *_each(c_void_p, "panels", "scales", "bias", "sums"),
        *_each(c_int32, "inputs", "outputs", "bytes"),
    )


class CNorm(ctypes.Structure):
    """One norm, or none."""

    _fields_ = (*_each(c_void_p, "gain", "shift"), ("eps", c_float), ("kind", c_int32))


class CResidual(ctypes.Structure):
    """after(x + inside(part(before(x))))."""

    _fields_ = (("before", CNorm), ("inside", CNorm), ("after", CNorm))


class CAttention(ctypes.Structure):
    """One attention layer."""

    _fields_ = (
        *(("project", CLinear), ("output", CLinear), ("source", CLinear)),
        *_each(c_void_p, "sin", "cos", "bias"),
        *_each(c_int32, "heads", "kv_heads", "key_dim", "value_dim", "positions"),
        ("scale", c_float),
    )


class CFeedForward(ctypes.Structure):
    """One feed-forward layer."""

    _fields_ = (("inner", CLinear), ("gate", CLinear), ("outer", CLinear), ("activation", c_int32))


class CBlock(ctypes.Structure):
    """One block."""

    _fields_ = (
        *(("residual_self", CResidual), ("residual_cross", CResidual), ("residual_feed_forward", CResidual)),
        *(("self", CAttention), ("cross", CAttention), ("feed_forward", CFeedForward)),
    )


class CStack(ctypes.Structure):
    """Blocks, the norm after them, and the output."""

    _fields_ = (
        *(("blocks", POINTER(CBlock)), ("final_norm", CNorm), ("output", CLinear)),
        *_each(c_int32, "layers", "dim"),
    )


class CCache(ctypes.Structure):
    """Keys and values of the tokens that were read, in slots."""

    _fields_ = (
        *_each(c_void_p, "keys", "values", "lists", "lengths", "firsts"),
        ("slots", c_int64),
        *_each(c_int32, "length", "stride", "first", "window", "format"),
    )


class CMemory(ctypes.Structure):
    """Keys and values of the sources, for cross-attention."""

    _fields_ = (
        *_each(c_void_p, "keys", "values", "lists", "lengths", "sentence"),
        *(("slots", c_int64), ("stride", c_int32)),
    )


class CSeen(ctypes.Structure):
    """One head of one layer whose scores or weights are wanted."""

    _fields_ = (
        *_each(c_void_p, "weights", "scores"),
        ("width", c_int64),
        *_each(c_int32, "layer", "head", "cross"),
    )


class CInput(ctypes.Structure):
    """The token embedding."""

    _fields_ = (*_each(c_void_p, "table", "positions"), ("scale", c_float))


class CSearchSettings(ctypes.Structure):
    """Prompts, and how to search."""

    _fields_ = (
        *_each(c_void_p, "prompts", "max_tokens"),
        ("length_penalty", c_double),
        *_each(c_int32, "sentences", "prompt", "beam_width", "n_best", "stop", "threads", "scored"),
    )


class CSearchResults(ctypes.Structure):
    """The hypotheses that a search found."""

    _fields_ = (*_each(c_void_p, "tokens", "logprobs", "scores", "lengths"), ("room", c_int32))


STRUCTURES = (  # tests compare every field with what C says in fields.c
    *(CLinear, CNorm, CResidual, CAttention, CFeedForward, CBlock, CStack),
    *(CCache, CMemory, CSeen, CInput, CSearchSettings, CSearchResults),
)


@dataclass(eq=False)
class Packed:
    """A matrix as native code reads it."""

    linear: CLinear
    memory: list[Tensor]  # what it points to, and the weights that it was made of


# By the memory of the weights: networks that share weights, as the adapters of one base do, share what is made of them.
_packed: WeakValueDictionary[tuple[object, ...], Packed] = WeakValueDictionary()


class Layout:
    """The structures of one stack, and the memory that they point to."""

    def __init__(self, stack: Encoder | Decoder, output: nn.Linear | None, library: Library, int8: bool = False):
        self.panel, self.group, self.int8 = library.clearhead_panel(), library.clearhead_group(), int8
        self._memory: list[object] = []
        self._weights = WeightMemory()
        self.layers: list[MultiHeadAttention] = [block.self_attention for block in stack.blocks]  # type: ignore[misc]
        self.blocks = (CBlock * len(stack.blocks))(*(self._block(block) for block in stack.blocks))
        self.final_norm, self.output = self._norm(stack.norm), CLinear() if output is None else self._linear(output)
        self.positions, self._lock = 0, Lock()
        self.stack = self.reach(64)

    def reach(self, length: int) -> CStack:
        """The stack with tables of relative positions for at least this length.

        Longer tables make a new structure: another thread may still compute with the old one.
        """
        with self._lock:
            if length > self.positions:
                self.positions = 2 * length
                self.stack = self._with_tables(self.positions)
            return self.stack

    def _with_tables(self, length: int) -> CStack:
        blocks = type(self.blocks).from_buffer_copy(self.blocks)
        for block, layer in zip(blocks, self.layers, strict=True):
            form = layer.relative.native_form(length)
            assert form is not None
            tables = (form.sin, form.cos, form.bias)
            block.self.sin, block.self.cos, block.self.bias = (x if x is None else self._keep(x) for x in tables)
            block.self.positions = length
        self._memory.append(blocks)
        return CStack(blocks, self.final_norm, self.output, len(blocks), self.layers[0].dim)

    def _block(self, block: nn.Module) -> CBlock:
        crosses = isinstance(block, DecoderBlock)
        residuals = [block.residual1, block.residual2, *([block.residual3] if crosses else [])]
        around = [self._residual(each) for each in residuals]  # type: ignore[arg-type]
        own, feed = self._attention(block.self_attention), self._feed_forward(block.feed_forward)  # type: ignore[arg-type]
        if not crosses:
            return CBlock(around[0], CResidual(), around[1], own, CAttention(), feed)
        cross = self._attention(block.cross_attention, crosses=True)  # type: ignore[arg-type]
        return CBlock(*around, own, cross, feed)

    def _attention(self, layer: MultiHeadAttention, crosses: bool = False) -> CAttention:
        """Queries, keys and values by one product; in cross-attention, keys and values by another, once per source."""
        parts = [layer.query] if crosses else [layer.query, layer.key, layer.value]
        return CAttention(
            project=self._linear(*parts),
            output=self._linear(layer.output),
            source=self._linear(layer.key, layer.value) if crosses else CLinear(),
            heads=layer.heads,
            kv_heads=layer.kv_heads,
            key_dim=layer.key_dim,
            value_dim=layer.value_dim,
            scale=dot_scale(layer.kernel.score, layer.key_dim),
        )

    def _feed_forward(self, part: FeedForwardLayer) -> CFeedForward:
        form = part.native_form()
        assert form is not None
        gate = CLinear() if form.gate is None else self._linear(form.gate)
        code = ACTIVATIONS[form.activation, form.gate is not None]
        return CFeedForward(self._linear(form.inner), gate, self._linear(form.outer), code)

    def _residual(self, around: Residual) -> CResidual:
        form = around.native_form()
        assert form is not None
        norms = {"before": form.before, "inside": form.inside, "after": form.after}
        return CResidual(**{where: self._norm(norm) for where, norm in norms.items() if norm is not None})

    def _norm(self, norm: nn.Module) -> CNorm:
        assert isinstance(norm, NativeNorm)
        form = norm.native_form()
        gain, shift = (None if x is None else self._keep(x) for x in (form.gain, form.shift))
        return CNorm(gain, shift, form.eps, NORMS[form.kind])

    def _linear(self, *parts: nn.Linear) -> CLinear:
        """One matrix for several linear maps of the same input, their outputs side by side."""
        weights = [each for part in parts for each in part.parameters()]
        if not all(isinstance(part, nn.Linear) for part in parts) or any(each.is_inference() for each in weights):
            return self._remember(self._pack(*parts))  # a sum, or weights that do not count their changes
        key = (self.panel, self.group, self.int8, *((each.data_ptr(), each._version, each.shape) for each in weights))
        packed = _packed.get(key)
        if packed is None:
            packed = _packed[key] = self._pack(*parts)
            packed.memory += weights  # nothing else gets their addresses as long as this is used
        return self._remember(packed)

    def _remember(self, packed: Packed) -> CLinear:
        self._memory.append(packed)
        return packed.linear

    def _pack(self, *parts: nn.Linear) -> Packed:
        weight = torch.cat([part.weight for part in parts])  # (out, in)
        bias = torch.cat([torch.zeros(part.out_features) if part.bias is None else part.bias for part in parts])
        outputs, inputs = weight.shape
        missing = -outputs % self.panel
        weight, bias = F.pad(weight, (0, 0, 0, missing)), F.pad(bias, (0, missing))
        scale, sums, group = torch.ones_like(bias), torch.zeros_like(bias), 1
        if self.int8:
            scale = _byte_scales(weight)
            weight, group = F.pad((weight / scale.unsqueeze(1)).round(), (0, -inputs % self.group)), self.group
            weight, sums = weight.to(torch.int8), weight.sum(1)
        panels = weight.view(-1, self.panel, weight.size(1) // group, group)
        panels = panels.transpose(1, 2)  # (…, in / group, panel, group)
        memory = [self._weights.copy(each) for each in (panels, scale, bias, sums)]
        return Packed(CLinear(*(each.data_ptr() for each in memory), inputs, outputs, self.int8), memory)

    def _keep(self, tensor: Tensor) -> int:
        """The address of a copy that lives as long as the layout."""
        own = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._memory.append(own)
        return own.data_ptr()


def _byte_scales(weight: Tensor) -> Tensor:
    """The scale of each output, weight (out, in) -> (out,): what a byte's unit stands for.

    No byte is beyond ±127, and two neighbours of one sign are at most 128 together: linear.h says why.
    """
    pairs = F.pad(weight, (0, weight.size(1) % 2)).view(len(weight), -1, 2)  # (out, in / 2, 2)
    above, below = pairs.clamp(min=0).sum(2), pairs.clamp(max=0).sum(2)
    return torch.maximum(above, -below).amax(1).clamp(min=1e-12) / 127


def unsupported_parts(network: object) -> list[str]:
    """What keeps native code from stepping through a network: parts of its decoder without a native form."""
    if not isinstance(network, TransformerDecoder):
        return ["it is not a Transformer that generates tokens"]
    return [*_unsupported_ends(network), *unsupported_in_stack(network.decoder_stack)]


def _unsupported_ends(network: TransformerDecoder) -> Iterator[str]:
    """What native code does not compute before the first block and after the last."""
    if not network.decoder_input.is_sum:
        yield "token vectors that are more than token and position"
    if not network.output.is_linear:
        yield "an output that is more than a matrix"


def unsupported_in_stack(stack: nn.Module) -> Iterator[str]:
    """The parts of a stack without a native form."""
    for part in stack.modules():
        if isinstance(part, MultiHeadAttention) and not isinstance(part.kernel, Fused):
            yield "a custom attention score or normalisation"
        if isinstance(part, MultiHeadAttention) and not isinstance(part.query_norm, NoNorm):
            yield "normalised queries and keys"
        if isinstance(part, MultiHeadAttention) and part.window is not None:
            yield "blocks with a window of their own"
        if isinstance(part, ParallelBlock):
            yield "attention and feed-forward side by side"
        if isinstance(part, RelativePositions) and part.native_form(1) is None:
            yield f"the positions {part.scheme}"
        if isinstance(part, Residual):
            yield from _unsupported_residual(part)
        if isinstance(part, FeedForwardLayer):
            form = part.native_form()
            if form is None or (form.activation, form.gate is not None) not in ACTIVATIONS:
                yield "an activation of its own"


def _unsupported_residual(residual: Residual) -> Iterator[str]:
    form = residual.native_form()
    if form is None:
        yield f"the placement {type(residual).__name__}"
        return
    for norm in (form.before, form.inside, form.after):
        if norm is not None and not (isinstance(norm, NativeNorm) and norm.native_form().kind in NORMS):
            yield f"the norm {type(norm).__name__}"


# --- token vectors ---


class TokenVectors:
    """Token vectors as native code computes them: a row of the table, scaled, plus the vector of its position."""

    def __init__(self, embed: TokenInput, *, concatenated: bool):
        self.embed, self.concatenated = embed, concatenated
        self.count = embed.tokens.table.num_embeddings
        self.positions = torch.empty(1, 0, 0)  # (1, positions, D)
        self._older: list[Tensor] = []  # shorter tables: another thread may still compute with them
        self._lock = Lock()

    def reach(self, end: int) -> bool:
        """Make the table at least this long; False where position vectors are not added, or end before."""
        if self.concatenated or not self.embed.positions.is_added:
            return False
        if end > self.positions.size(1):
            room = min(2 * end, self.embed.positions.max_length or 2 * end)
            if end > room:
                return False
            with self._lock, torch.inference_mode():
                if room > self.positions.size(1):  # no other thread has made it longer meanwhile
                    zeros = self.embed.tokens.table.weight.new_zeros(1, room, self.embed.tokens.dim)
                    self._older.append(self.positions)
                    self.positions = self.embed.positions(zeros)
        return True

    def embed_tokens(self, ids: Tensor, start: int) -> Tensor:
        """Tokens (B, T) from position `start` on -> (B, T, D), as the model embeds them."""
        end = start + ids.size(1)
        if not self.reach(end):
            whole: Tensor = self.embed(ids, start=start)
            return whole.contiguous()
        return self._table_rows(ids) + self.positions[:, start:end]

    def embed_at(self, ids: Tensor, starts: Tensor) -> Tensor:
        """The same for rows that start at unequal positions (B,)."""
        if not self.reach(int(starts.max()) + ids.size(1)):
            rows = zip(ids, starts.tolist(), strict=True)
            return torch.cat([self.embed_tokens(row.unsqueeze(0), start) for row, start in rows])
        places = starts.unsqueeze(1) + torch.arange(ids.size(1))  # (B, T)
        return self._table_rows(ids) + self.positions[0][places]

    def _table_rows(self, ids: Tensor) -> Tensor:
        tokens = self.embed.tokens
        return torch.embedding(tokens.table.weight, ids).mul_(tokens.scale)

    def structure(self) -> CInput:
        """The same for native code, as far as the table reaches."""
        added = self.positions.data_ptr() if self.embed.positions.has_vectors else None
        return CInput(self.embed.tokens.table.weight.data_ptr(), added, self.embed.tokens.scale)
