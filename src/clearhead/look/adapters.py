"""Hearing other people's attention: every call, by the explicit equation, while the module computes as always.

    torch           hooks on every nn.MultiheadAttention, whose matrices are applied once more
    transformers    a function in the place of their eager one, which calls it and listens

What kind a call is of is told by itself: attention to something else is `decoder.cross`; attention to itself is
`decoder.self` in a decoder or where no query sees what comes after it, and `encoder.self` otherwise.

    B batch (of one), H heads, G key-value heads, T queries, S keys, D size of a vector
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError
from clearhead.nn import scaled_dot, softmax
from clearhead.nn.attention import share_heads, split_heads

CROSS = ("cross", "encoder_attn", "encdec")  # what transformers calls attention to a memory, in small letters


@dataclass(frozen=True)
class Call:
    """One call of attention."""

    path: str  # of the layer in its module
    cross: bool  # whether it looked at something else
    causal: bool  # whether it may only look back
    query: Tensor  # (H, T, D)
    key: Tensor  # (H, S, D)
    value: Tensor  # (H, S, D)
    scores: Tensor  # (H, T, S) before the mask
    weights: Tensor  # (H, T, S)
    visible: Tensor  # (T, S)

    @property
    def kind(self) -> str:
        """encoder.self, decoder.self or decoder.cross."""
        if self.cross:
            return "decoder.cross"
        return "decoder.self" if self.causal or "decoder" in self.path else "encoder.self"


def attention_calls(module: nn.Module) -> AbstractContextManager[list[Call]]:
    """The calls of attention while the context lasts, in their order."""
    theirs = any(type(part).__module__.startswith("transformers.") for part in module.modules())
    return of_transformers(module) if theirs else of_torch(module)


# --- torch ---


@contextmanager
def of_torch(module: nn.Module) -> Iterator[list[Call]]:
    """The calls of every nn.MultiheadAttention; torch's shortcut for whole blocks makes none, and is off meanwhile."""
    calls: list[Call] = []
    paths: dict[nn.Module, str] = {
        part: path for path, part in module.named_modules() if isinstance(part, nn.MultiheadAttention)
    }

    def listen(layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append(_torch_call(paths[layer], layer, arguments, named))

    shortcut = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    hooks = [layer.register_forward_pre_hook(listen, with_kwargs=True) for layer in paths]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
        torch.backends.mha.set_fastpath_enabled(shortcut)


def _torch_call(path: str, layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Call:
    """The equation with the layer's own matrices, (B, T, D) or (T, B, D) in."""
    if layer.bias_k is not None or layer.add_zero_attn:
        raise ProbeError(f"{path} has keys that belong to no token (add_bias_kv or add_zero_attn), which have no word")
    given = inspect.signature(layer.forward).bind(*arguments, **named).arguments
    inputs = [_batch_first(given[name], layer.batch_first) for name in ("query", "key", "value")]
    q, k, v = (
        split_heads(F.linear(x, weight, bias), layer.num_heads)
        for x, weight, bias in zip(inputs, *_matrices(layer), strict=True)
    )
    _check_batch(q)
    added = [
        _as_added(mask, q.dtype)
        for mask in (given.get("attn_mask"), _of_keys(given.get("key_padding_mask")))
        if mask is not None
    ]
    cross = given["key"] is not given["query"] and "self" not in path
    scores, visible = _masked(scaled_dot(q, k), added)
    tensors = (q, k, v, scores, softmax(scores, visible))
    return _call(path, cross, given.get("is_causal", False), tensors, visible)


def _batch_first(x: Tensor, is_first: bool) -> Tensor:
    """(B, T, D), from (T, D) too."""
    return x.unsqueeze(0) if x.dim() == 2 else x if is_first else x.transpose(0, 1)


def _matrices(layer: Any) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
    """The weights and biases of queries, keys and values."""
    weights = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    weights = weights if layer.in_proj_weight is None else layer.in_proj_weight.chunk(3)
    return weights, [None] * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)


def _of_keys(mask: Tensor | None) -> Tensor | None:
    """(B, S) -> (B, 1, S)."""
    return None if mask is None else mask.unsqueeze(-2)


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What torch adds to the scores; in a boolean mask of theirs, True = hidden."""
    return mask if mask.is_floating_point() else mask.new_zeros(mask.shape, dtype=dtype).masked_fill(mask, -torch.inf)


# --- transformers ---


@contextmanager
def of_transformers(module: nn.Module) -> Iterator[list[Call]]:
    """The calls of every layer that attends through transformers' interface; meanwhile all of them attend eagerly."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    calls: list[Call] = []
    paths = {part: path for path, part in module.named_modules()}

    def attend(
        layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **named: Any
    ) -> tuple[Tensor, Tensor]:
        eager = inspect.unwrap(type(layer).forward).__globals__["eager_attention_forward"]
        given = (query, key, value, attention_mask)
        output, weights = eager(layer, *given, **named)
        calls.append(_their_call(paths[layer], layer, given, weights, named.get("scaling")))
        return output, weights

    configs = {id(part.config): part.config for part in paths if hasattr(part, "config")}
    before = {key: config._attn_implementation for key, config in configs.items()}
    ALL_ATTENTION_FUNCTIONS["eager"] = attend  # which has no function of its own there: each layer brings one
    try:
        for config in configs.values():
            config._attn_implementation = "eager"
        yield calls
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]
        ALL_ATTENTION_FUNCTIONS.pop("eager")


def _their_call(path: str, layer: Any, given: Sequence[Any], weights: Tensor, scale: float | None) -> Call:
    """Of q (B, H, T, D), k and v (B, G, S, D) and a mask (B, 1, T, S) that is 0 where visible, or none."""
    q, k, v, mask = given
    _check_batch(q)
    scores = q @ share_heads(k, q.size(1)).transpose(-2, -1) * (q.size(-1) ** -0.5 if scale is None else scale)
    cross = getattr(layer, "is_cross_attention", False) or any(word in path.lower() for word in CROSS)
    scores, visible = _masked(scores, [] if mask is None else [mask[0, :, :, : k.size(-2)]])
    return _call(path, cross, getattr(layer, "is_causal", False), (q, k, v, scores, weights), visible)


# --- what both have in common ---


def _check_batch(q: Tensor) -> None:
    if len(q) != 1:
        raise ProbeError(f"a look is at one example, and the batch has {len(q)}; give the module one of them")


def _masked(scores: Tensor, added: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Scores (B, H, T, S) with what is added to them, and what is visible: very low numbers (H, T, S) are a mask."""
    lowest = torch.finfo(scores.dtype).min / 2
    visible = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device)
    for each in added:
        visible = visible & (each > lowest)
        scores = scores + each.masked_fill(each <= lowest, 0.0)
    return scores, visible


def _call(path: str, cross: bool, causal: bool, tensors: Sequence[Tensor], visible: Tensor) -> Call:
    """From q (B, H, T, D), k and v (B, G, S, D), scores and weights (B, H, T, S), and visible (H, T, S)."""
    q, k, v, scores, weights = tensors
    shared = (q, share_heads(k, q.size(1)), share_heads(v, q.size(1)), scores, weights)
    query, key, value, scores, weights = (each[0].cpu() for each in shared)
    seen = visible.any(0).cpu()  # (T, S), by any head
    looks_back = seen.size(0) == seen.size(1) > 1 and not seen.triu(1).any()
    return Call(path, cross, bool(causal or looks_back), query, key, value, scores, weights, seen)
