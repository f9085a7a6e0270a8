"""Attention of short sequences while training: the equation of nn/attention.py, forward and backward, in native code.

torch's fused kernel is made for long sequences: with some dozens of tokens, it takes longer to begin each head than to
compute it.

    B batch, T queries, S keys, H heads, G key-value heads, K key size, V value size
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_float, c_int32, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearhead.engines.native.library import Library, load_library
from clearhead.nn import Fused, Mask, MultiHeadAttention
from clearhead.nn.positions import Bias
from clearhead.nn.scores import dot_scale

LONGEST = 64  # tokens up to which one thread is faster here than in torch's kernel


class CHeadVectors(ctypes.Structure):
    """The vectors of all heads."""

    _fields_ = (("numbers", c_void_p), ("batch", c_int64), ("head", c_int64), ("token", c_int64))


class CShortAttention(ctypes.Structure):
    """Sizes, and what each query sees."""

    _fields_ = (
        *(("visible", c_void_p), ("batch", c_int64), ("query", c_int64), ("key", c_int64)),
        *((name, c_int32) for name in ("rows", "heads", "kv_heads", "queries", "keys", "key_dim", "value_dim")),
        *(("causal", c_int32), ("scale", c_float)),
    )


STRUCTURES = (CHeadVectors, CShortAttention)


class ShortFused(Fused):
    """The fused kernel, by native code where the sequences are at most `longest` tokens long."""

    def __init__(self, kernel: Fused, library: Library, longest: int):
        super().__init__(kernel.score, kernel.dropout)
        self.library, self.longest = library, longest

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, offset: int, bias: Bias | None) -> Tensor:
        """q (B, H, T, K), k (B, G, S, K), v (B, G, S, V) -> (B, H, T, V)."""
        queries, keys = q.size(-2), k.size(-2)
        fits = 0 < queries <= self.longest and 0 < keys <= self.longest and bias is None
        if (
            not fits
            or (self.training and self.dropout)
            or any(x.dtype != torch.float32 or not x.is_cpu for x in (q, k, v))
        ):
            return super().forward(q, k, v, mask, offset, bias)
        scale, causal = dot_scale(self.score, q.size(-1)), mask.is_only_causal and offset == 0
        visible = None if causal else mask.rows(0, queries, 0, keys, offset, q.device)
        mixed: Tensor = _ShortAttention.apply(q, k, v, visible, causal, scale, self.library)  # type: ignore[no-untyped-call]
        return mixed


@contextmanager
def short_attention(model: nn.Module) -> Iterator[None]:
    """While open, the attention layers of a model compute short sequences on a CPU in native code, if it is there.

    It uses one thread, and torch all of its own, so that the sequences must be the shorter, the more threads torch has.
    """
    library, longest = load_library(), LONGEST // torch.get_num_threads() ** 2
    if library is None or longest == 0:
        yield
        return
    layers = [each for each in model.modules() if isinstance(each, MultiHeadAttention)]
    replaced = [(layer, layer.kernel) for layer in layers if type(layer.kernel) is Fused]
    try:
        for layer, kernel in replaced:
            layer.kernel = ShortFused(kernel, library, longest)
        yield
    finally:
        for layer, kernel in replaced:
            layer.kernel = kernel


class _ShortAttention(torch.autograd.Function):
    """What one call computes, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, scale: float, library: Library
    ) -> Tensor:
        """q (B, H, T, K), k (B, G, S, K), v (B, G, S, V), visible (T, S) or (B, T or 1, S) -> (B, H, T, V)."""
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        seen = None if visible is None else visible.expand(q.size(0), q.size(-2), k.size(-2))
        call = CShortAttention(
            *((None, 0, 0, 0) if seen is None else (seen.data_ptr(), *seen.stride())),
            *(q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), v.size(3), causal, scale),
        )
        out = _empty_heads(q, v.size(-1))
        weights = q.new_empty(*q.shape[:3], library.clearhead_short_stride(k.size(-2)))
        _check(library.clearhead_short_forward(byref(call), *map(_c, (q, k, v, out)), c_void_p(weights.data_ptr())))
        ctx.save_for_backward(q, k, v, weights)
        ctx.call, ctx.library = call, library
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """∂ / ∂out (B, H, T, V) -> those of q, k and v."""
        q, k, v, weights = ctx.saved_tensors
        gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
        found = [_empty_heads(x, x.size(-1)) for x in (q, k, v)]
        given = (*map(_c, (q, k, v, gradient)), c_void_p(weights.data_ptr()), *map(_c, found))
        _check(ctx.library.clearhead_short_backward(byref(ctx.call), *given))
        return *found, None, None, None, None


def _c(x: Tensor) -> Any:
    """The address of the C form of (B, H, T, size)."""
    return byref(CHeadVectors(x.data_ptr(), *x.stride()[:3]))


def _empty_heads(like: Tensor, size: int) -> Tensor:
    """(B, H, T, size) whose heads lie side by side for each token, as the layer splits and joins them."""
    rows, heads, tokens, _ = like.shape
    return like.new_empty(rows, tokens, heads, size).transpose(1, 2)


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("out of memory in the attention of a batch; lower data.batch_tokens")
