"""The weights of a stack as native code reads them: the structures of step.c and search.c, filled from modules of nn/.

D width, H heads, G key-value heads, K key size, V value size
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_void_p
from threading import Lock
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.models.base import TransformerDecoder
from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    FeedForwardLayer,
    MultiHeadAttention,
    RelativePositions,
    Residual,
)
from clearhead.nn.attention import Fused
from clearhead.nn.native import NativeNorm
from clearhead.nn.scores import dot_scale

NORMS = {"none": 0, "layer": 1, "rms": 2}  # the codes of the C side
ACTIVATIONS = {("relu", False): 0, ("gelu", False): 1, ("silu", True): 2}  # activation, gated -> code


class CLinear(ctypes.Structure):
    """y = x W + b."""

    _fields_ = (
        ("panels", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("sums", c_void_p),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("bytes", c_int32),
    )


class CNorm(ctypes.Structure):
    """One norm, or none."""

    _fields_ = (("gain", c_void_p), ("shift", c_void_p), ("eps", c_float), ("kind", c_int32))


class CResidual(ctypes.Structure):
    """after(x + inside(part(before(x))))."""

    _fields_ = (("before", CNorm), ("inside", CNorm), ("after", CNorm))


class CAttention(ctypes.Structure):
    """One attention layer."""

    _fields_ = (
        ("project", CLinear),
        ("output", CLinear),
        ("source", CLinear),
        ("sin", c_void_p),
        ("cos", c_void_p),
        ("bias", c_void_p),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("key_dim", c_int32),
        ("value_dim", c_int32),
        ("positions", c_int32),
        ("scale", c_float),
    )


class CFeedForward(ctypes.Structure):
    """One feed-forward layer."""

    _fields_ = (("inner", CLinear), ("gate", CLinear), ("outer", CLinear), ("activation", c_int32))


class CBlock(ctypes.Structure):
    """One block."""

    _fields_ = (
        ("residual_self", CResidual),
        ("residual_cross", CResidual),
        ("residual_feed_forward", CResidual),
        ("self", CAttention),
        ("cross", CAttention),
        ("feed_forward", CFeedForward),
    )


class CStack(ctypes.Structure):
    """Blocks, the norm after them, and the output."""

    _fields_ = (
        ("blocks", POINTER(CBlock)),
        ("final_norm", CNorm),
        ("output", CLinear),
        ("layers", c_int32),
        ("dim", c_int32),
    )


class CCache(ctypes.Structure):
    """Keys and values of the tokens that were read, in slots."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("lists", c_void_p),
        ("lengths", c_void_p),
        ("firsts", c_void_p),
        ("slots", c_int64),
        ("length", c_int32),
        ("stride", c_int32),
        ("first", c_int32),
        ("window", c_int32),
    )


class CMemory(ctypes.Structure):
    """Keys and values of the sources, for cross-attention."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("lists", c_void_p),
        ("lengths", c_void_p),
        ("sentence", c_void_p),
        ("slots", c_int64),
        ("stride", c_int32),
    )


class CInput(ctypes.Structure):
    """The token embedding."""

    _fields_ = (("table", c_void_p), ("positions", c_void_p), ("scale", c_float))


class CSearchSettings(ctypes.Structure):
    """Prompts, and how to search."""

    _fields_ = (
        ("prompts", c_void_p),
        ("max_tokens", c_void_p),
        ("length_penalty", c_double),
        ("sentences", c_int32),
        ("prompt", c_int32),
        ("beam_width", c_int32),
        ("n_best", c_int32),
        ("stop", c_int32),
        ("threads", c_int32),
    )


class CSearchResults(ctypes.Structure):
    """The hypotheses that a search found."""

    _fields_ = (
        ("tokens", c_void_p),
        ("logprobs", c_void_p),
        ("scores", c_void_p),
        ("lengths", c_void_p),
        ("room", c_int32),
    )


STRUCTURES = (
    CLinear,
    CNorm,
    CResidual,
    CAttention,
    CFeedForward,
    CBlock,
    CStack,
    CCache,
    CMemory,
    CInput,
    CSearchSettings,
    CSearchResults,
)  # in the order of `clearhead_structure_size`


class Layout:
    """The structures of one stack, and the memory that they point to."""

    def __init__(self, stack: Encoder | Decoder, output: nn.Linear | None, library: ctypes.CDLL, int8: bool = False):
        self.panel, self.group, self.int8 = 2 * library.clearhead_width(), library.clearhead_group(), int8
        self._memory: list[object] = []
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
            tables = self._tables(layer, length)
            block.self.sin, block.self.cos, block.self.bias = (x if x is None else self._keep(x) for x in tables)
            block.self.positions = length
        self._memory.append(blocks)
        return CStack(blocks, self.final_norm, self.output, len(blocks), self.layers[0].dim)

    def _tables(self, layer: MultiHeadAttention, length: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """sin and cos (T, K/2) of rotary positions, and the bias (H, 2T - 1) of each distance."""
        form = layer.relative.native_form(length)
        assert form is not None
        return form.sin, form.cos, form.bias

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
        weight = torch.cat([part.weight for part in parts])  # (out, in)
        bias = torch.cat([torch.zeros(part.out_features) if part.bias is None else part.bias for part in parts])
        outputs, inputs = weight.shape
        missing = -outputs % self.panel
        weight, bias = F.pad(weight, (0, 0, 0, missing)), F.pad(bias, (0, missing))
        scale, sums, group = torch.ones_like(bias), torch.zeros_like(bias), 1
        if self.int8:
            scale = weight.abs().amax(1).clamp(min=1e-12) / 127  # (out,)
            weight, group = F.pad((weight / scale.unsqueeze(1)).round(), (0, -inputs % self.group)), self.group
            weight, sums = weight.to(torch.int8), weight.sum(1)
        panels = weight.view(-1, self.panel, weight.size(1) // group, group).transpose(
            1, 2
        )  # (…, in / group, panel, group)
        return CLinear(*map(self._keep, (panels, scale, bias, sums)), inputs, outputs, self.int8)

    def _keep(self, tensor: Tensor) -> int:
        """The address of a copy that lives as long as the layout."""
        own = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._memory.append(own)
        return own.data_ptr()


def is_decoder(network: object) -> TypeGuard[TransformerDecoder]:
    """Whether it is a Transformer that generates token by token."""
    return isinstance(network, TransformerDecoder)


def unsupported_parts(stack: nn.Module) -> Iterator[str]:
    """The parts of a stack that have no native form."""
    for part in stack.modules():
        if isinstance(part, MultiHeadAttention) and not isinstance(part.kernel, Fused):
            yield "a custom attention score or normalisation"
        if isinstance(part, RelativePositions) and part.native_form(1) is None:
            yield f"the positions {part.scheme}"
        if isinstance(part, Residual):
            yield from _unsupported_residual(part)
        if isinstance(part, FeedForwardLayer) and not _knows_feed_forward(part):
            yield "an activation of its own"


def _unsupported_residual(residual: Residual) -> Iterator[str]:
    form = residual.native_form()
    if form is None:
        yield f"the placement {type(residual).__name__}"
        return
    for norm in (form.before, form.inside, form.after):
        if norm is not None and not (isinstance(norm, NativeNorm) and norm.native_form().kind in NORMS):
            yield f"the norm {type(norm).__name__}"


def _knows_feed_forward(part: FeedForwardLayer) -> bool:
    form = part.native_form()
    return form is not None and (form.activation, form.gate is not None) in ACTIVATIONS
