"""A `Look` at models from elsewhere: plain torch modules, and those of `transformers`.

    look_at(encoder, x)                                              any module with nn.MultiheadAttention inside
    look_at(gpt2, {"input_ids": ids}, tokens=tokenizer.tokenize(text))
    look_at(marian, {"input_ids": ids, "decoder_input_ids": written}, tokens={"encoder": [...], "decoder": [...]})

Every attention call is recorded by the explicit equation while the module computes as usual:

    torch           hooks on every nn.MultiheadAttention, whose projections are applied once more
    transformers    a wrapper around the eager attention function

Attention to something else is `decoder.cross`; self-attention is `decoder.self` in a decoder, or if no query sees what
comes after it, and `encoder.self` otherwise. A row of cross-attention is here a token that is read, since only the
model's own code knows what it generates.

    B batch (of one), H heads, G key-value heads, T queries, S keys, D size of a vector, V vocabulary or labels
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError
from clearhead.look.build import evaluation_mode
from clearhead.look.inputs import patch_names
from clearhead.look.look import Look
from clearhead.look.probes import removing
from clearhead.look.record import TENSORS, AttentionRecord
from clearhead.nn import scaled_dot, softmax
from clearhead.nn.attention import share_heads, split_heads

CROSS = ("cross", "encoder_attn", "encdec")  # names of cross-attention in transformers, in lower case

Inputs = Tensor | Sequence[Tensor] | Mapping[str, Any]
Tokens = Sequence[str] | Mapping[str, Sequence[str]]


def look_at(
    module: nn.Module, inputs: Inputs, tokens: Tokens | None = None, *, text: str = "", choices: Sequence[str] = ()
) -> Look:
    """A look at a module for one example, called as `module(*inputs)` or `module(**inputs)`.

    `tokens` are the token strings of the input, by stack if there are two; without them tokens are numbered. `choices`
    are the names of the logits; the output of a plain module counts as its logits.
    """
    with evaluation_mode(module), torch.no_grad(), attention_calls(module) as calls, _block_calls(module) as blocks:
        if isinstance(inputs, Mapping):
            output = module(**inputs)
        else:
            output = module(*([inputs] if isinstance(inputs, Tensor) else inputs))
    if not calls:
        raise ProbeError(f"{type(module).__name__} did not attend: no nn.MultiheadAttention or transformers layer ran")
    kinds = _by_kind(calls)
    names, grid = _names(kinds, tokens, module, inputs)
    logits = _logits(output)
    choices = tuple(choices) or _labels(module, logits)
    return Look(
        model=type(module).__name__,
        task="other",
        text=text,
        attention={kind: _attention_record(kind, layers, names) for kind, layers in kinds.items()},
        tokens=names,
        hidden=_hidden_states(kinds, blocks),
        logits=logits,
        output=_answer(logits, choices),
        choices=choices,
        grid=grid,
        class_token=grid is not None and len(names["encoder"]) > grid[0] * grid[1],
    )


@dataclass(frozen=True)
class BlockCall:
    """One call of a block."""

    path: str
    input: Tensor  # (T, D)
    output: Tensor  # (T, D)


# --- kinds, layers and blocks ---


@contextmanager
def _block_calls(module: nn.Module) -> Iterator[list[BlockCall]]:
    """Input and output of every member of a ModuleList or Sequential, in the order of the calls."""
    calls: list[BlockCall] = []
    lists = [(path, part) for path, part in module.named_modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    members = {part: f"{path}.{name}".lstrip(".") for path, several in lists for name, part in several.named_children()}

    def record(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        x = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        y = output[0] if isinstance(output, tuple) else output
        if x is not None and isinstance(y, Tensor):
            # A batch of one in either dimension: (1, T, D) or (T, 1, D) -> (T, D).
            calls.append(BlockCall(members[block], *(each.reshape(-1, each.size(-1)).cpu() for each in (x, y))))

    with removing(block.register_forward_hook(record, with_kwargs=True) for block in members):
        yield calls


def _by_kind(calls: Sequence[AttentionLayer]) -> dict[str, list[AttentionLayer]]:
    """The layers of each kind, in order; all of one kind must read the same tokens."""
    kinds: dict[str, list[AttentionLayer]] = {}
    for call in calls:
        kinds.setdefault(call.kind, []).append(call)
    for kind, layers in kinds.items():
        for layer in layers:
            if layer.weights.shape != layers[0].weights.shape:
                sizes = [" × ".join(map(str, each.weights.shape)) for each in (layers[0], layer)]
                raise ProbeError(
                    f"{layers[0].path} and {layer.path} are both {kind} and have weights of {sizes[0]} and {sizes[1]}; "
                    "look at a part of the module whose layers are alike"
                )
    return kinds


def _attention_record(kind: str, layers: Sequence[AttentionLayer], names: Mapping[str, list[str]]) -> AttentionRecord:
    stack = kind.split(".")[0]
    return AttentionRecord(
        rows=names[stack],
        columns=names["encoder" if kind == "decoder.cross" else stack],
        causal=kind == "decoder.self" and not bool(layers[0].visible.triu(1).any()),
        visible=layers[0].visible,
        **{name: [getattr(layer, name) for layer in layers] for name in TENSORS},
    )


def _hidden_states(
    kinds: Mapping[str, Sequence[AttentionLayer]], calls: Sequence[BlockCall]
) -> dict[str, list[Tensor]]:
    """The input of the first block of a stack, and the output of each; a block is the member of a list that attends."""
    found = {}
    for stack in ("encoder", "decoder"):
        blocks = set()
        for layer in kinds.get(f"{stack}.self", ()):
            around = [call.path for call in calls if f"{layer.path}.".startswith(f"{call.path}.")]
            blocks.add(max(around, key=len, default=None))  # the innermost
        own = [call for call in calls if call.path in blocks]
        if own:
            found[stack] = [own[0].input, *(call.output for call in own)]
    return found


# --- tokens ---


def _names(
    kinds: Mapping[str, Sequence[AttentionLayer]], tokens: Tokens | None, module: nn.Module, inputs: Inputs
) -> tuple[dict[str, list[str]], tuple[int, int] | None]:
    """The tokens of each stack, and the grid of patches if the encoder reads an image."""
    sizes: dict[str, int] = {}
    for kind, (layer, *_) in kinds.items():
        queries, keys = layer.visible.shape
        sizes |= {"decoder": queries, "encoder": keys} if kind == "decoder.cross" else {kind.split(".")[0]: queries}
    lengths = {stack: sizes[stack] for stack in ("encoder", "decoder") if stack in sizes}
    patches, grid = _patches(module, inputs, lengths.get("encoder", 0))
    numbered = {stack: [str(number) for number in range(length)] for stack, length in lengths.items()}
    names = numbered | ({"encoder": patches} if patches else {}) | _by_stack(tokens, list(lengths))
    for stack, length in lengths.items():
        if len(names[stack]) != length:
            given = f"{len(names[stack])} token strings were given"
            raise ProbeError(f"{given} for the {length} tokens that the {stack} reads")
    return names, grid


def _by_stack(tokens: Tokens | None, stacks: Sequence[str]) -> dict[str, list[str]]:
    if isinstance(tokens, Mapping):
        for stack in tokens:
            if stack not in stacks:
                raise ProbeError(f"tokens were given for a stack called {stack}; this module has {', '.join(stacks)}")
        return {stack: list(strings) for stack, strings in tokens.items()}
    if tokens is not None and len(stacks) > 1:
        form = "tokens={'encoder': [...], 'decoder': [...]}"
        raise ProbeError(f"this module has two stacks: give their token strings as {form}")
    return {} if tokens is None else {stacks[0]: list(tokens)}


def _patches(module: nn.Module, inputs: Inputs, length: int) -> tuple[list[str], tuple[int, int] | None]:
    """The names of the patches of `pixel_values`, after that of a class token if there is one; and their grid."""
    patch = getattr(getattr(module, "config", None), "patch_size", None)
    if not isinstance(inputs, Mapping) or "pixel_values" not in inputs or not isinstance(patch, int):
        return [], None
    images = inputs["pixel_values"]
    names = patch_names(images, patch)
    if length - len(names) not in (0, 1):
        return [], None
    return ["class"] * (length - len(names)) + names, (images.size(-2) // patch, images.size(-1) // patch)


# --- the answer ---


def _logits(output: Any) -> Tensor | None:
    """(T, V) or (V,), from the output of any module."""
    found = getattr(output, "logits", output)
    found = found[0] if type(found) in (tuple, list) else found
    if not isinstance(found, Tensor) or found.dim() not in (2, 3):
        return None
    if found.dim() == 3:
        return found.reshape(-1, found.size(-1)).cpu()  # a batch of one in either dimension
    return (found[0] if len(found) == 1 else found).cpu()


def _labels(module: nn.Module, logits: Tensor | None) -> tuple[str, ...]:
    labels = getattr(getattr(module, "config", None), "id2label", None) or {}
    fits = logits is not None and logits.dim() == 1 and len(labels) == len(logits)
    return tuple(labels[number] for number in sorted(labels)) if fits else ()


def _answer(logits: Tensor | None, choices: Sequence[str]) -> str:
    """The likeliest choice, or one for each token."""
    best = [] if logits is None else logits.argmax(-1).reshape(-1).tolist()
    return " ".join(choices[number] if choices else str(number) for number in best)


# --- attention calls ---


@dataclass(frozen=True)
class AttentionLayer:
    """One call of an attention layer."""

    path: str  # of the layer in its module
    cross: bool  # keys come from another sequence
    causal: bool  # no query sees what comes after it
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


def attention_calls(module: nn.Module) -> AbstractContextManager[list[AttentionLayer]]:
    """Record the attention calls inside the `with` block, in order."""
    is_transformers = any(type(part).__module__.startswith("transformers.") for part in module.modules())
    return transformers_calls(module) if is_transformers else torch_calls(module)


# --- torch ---


@contextmanager
def torch_calls(module: nn.Module) -> Iterator[list[AttentionLayer]]:
    """Record every nn.MultiheadAttention; the fast path of torch, which bypasses it, is switched off meanwhile."""
    calls: list[AttentionLayer] = []
    paths = {part: path for path, part in module.named_modules() if isinstance(part, nn.MultiheadAttention)}

    def record(layer: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(_torch_call(paths[layer], layer, args, kwargs))

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with removing(layer.register_forward_pre_hook(record, with_kwargs=True) for layer in paths):
            yield calls
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _torch_call(
    path: str, layer: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AttentionLayer:
    """The equation with the projections of the layer; inputs (B, T, D) or (T, B, D)."""
    if layer.bias_k is not None or layer.add_zero_attn:
        raise ProbeError(f"{path} has keys that belong to no token (add_bias_kv or add_zero_attn) and cannot be shown")
    given = inspect.signature(layer.forward).bind(*args, **kwargs).arguments
    inputs = [_batch_first(given[name], layer.batch_first) for name in ("query", "key", "value")]
    projected = (F.linear(*each) for each in zip(inputs, *_matrices(layer), strict=True))
    q, k, v = (split_heads(x, layer.num_heads) for x in projected)
    _check_batch(q)
    padding = given.get("key_padding_mask")  # (B, S)
    masks = (given.get("attn_mask"), None if padding is None else padding.unsqueeze(-2))
    added = [_as_added(mask, q.dtype) for mask in masks if mask is not None]
    cross = given["key"] is not given["query"] and "self" not in path
    scores, visible = _masked(scaled_dot(q, k), added)
    tensors = (q, k, v, scores, softmax(scores, visible))
    return _call(path, cross, given.get("is_causal", False), tensors, visible)


def _batch_first(x: Tensor, is_first: bool) -> Tensor:
    """(B, T, D), also from (T, D)."""
    return x.unsqueeze(0) if x.dim() == 2 else x if is_first else x.transpose(0, 1)


def _matrices(layer: nn.MultiheadAttention) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
    apart = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    weights = apart if layer.in_proj_weight is None else layer.in_proj_weight.chunk(3)
    return weights, [None] * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as torch adds it to the scores; in its boolean masks True = hidden."""
    return mask if mask.is_floating_point() else mask.new_zeros(mask.shape, dtype=dtype).masked_fill(mask, -torch.inf)


# --- transformers ---


@contextmanager
def transformers_calls(module: nn.Module) -> Iterator[list[AttentionLayer]]:
    """Record every layer that uses the attention interface of transformers; meanwhile all of them attend eagerly."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    calls: list[AttentionLayer] = []
    paths = {part: path for path, part in module.named_modules()}

    def attend(
        layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        eager = inspect.unwrap(type(layer).forward).__globals__["eager_attention_forward"]
        inputs = (query, key, value, attention_mask)
        output, weights = eager(layer, *inputs, **kwargs)
        calls.append(_transformers_call(paths[layer], layer, inputs, weights, kwargs.get("scaling")))
        return output, weights

    configs = {id(part.config): part.config for part in paths if hasattr(part, "config")}
    before = {key: config._attn_implementation for key, config in configs.items()}
    ALL_ATTENTION_FUNCTIONS["eager"] = attend  # not registered by transformers: each layer brings its own
    try:
        for config in configs.values():
            config._attn_implementation = "eager"
        yield calls
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]
        ALL_ATTENTION_FUNCTIONS.pop("eager")


def _transformers_call(
    path: str, layer: Any, inputs: Sequence[Any], weights: Tensor, scale: float | None
) -> AttentionLayer:
    """From q (B, H, T, D), k and v (B, G, S, D) and a mask (B, 1, T, S) that is 0 where visible, or None."""
    q, k, v, mask = inputs
    _check_batch(q)
    scores = q @ share_heads(k, q.size(1)).transpose(-2, -1) * (q.size(-1) ** -0.5 if scale is None else scale)
    cross = getattr(layer, "is_cross_attention", False) or any(word in path.lower() for word in CROSS)
    scores, visible = _masked(scores, [] if mask is None else [mask[0, :, :, : k.size(-2)]])
    return _call(path, cross, getattr(layer, "is_causal", False), (q, k, v, scores, weights), visible)


# --- torch and transformers ---


def _check_batch(q: Tensor) -> None:
    if len(q) != 1:
        raise ProbeError(f"a look shows one example, and the batch has {len(q)}; give the module one of them")


def _masked(scores: Tensor, added: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Scores (B, H, T, S) with all additive biases, and what is visible (H, T, S): very low numbers are a mask."""
    lowest = torch.finfo(scores.dtype).min / 2
    visible = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device)
    for each in added:
        visible = visible & (each > lowest)
        scores = scores + each.masked_fill(each <= lowest, 0.0)
    return scores, visible


def _call(path: str, cross: bool, causal: bool, tensors: Sequence[Tensor], visible: Tensor) -> AttentionLayer:
    """From q (B, H, T, D), k and v (B, G, S, D), scores and weights (B, H, T, S), and visible (H, T, S)."""
    q, k, v, scores, weights = tensors
    shared = (q, share_heads(k, q.size(1)), share_heads(v, q.size(1)), scores, weights)
    query, key, value, scores, weights = (each[0].cpu() for each in shared)
    seen = visible.any(0).cpu()  # (T, S), by any head
    only_back = seen.size(0) == seen.size(1) > 1 and not seen.triu(1).any()
    return AttentionLayer(path, cross, bool(causal or only_back), query, key, value, scores, weights, seen)
