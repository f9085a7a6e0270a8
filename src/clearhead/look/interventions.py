"""Interventions: change one thing inside a model, to measure its effect.

    with heads_off(model, "encoder.2.self", heads=[1]):
        model(source, target)                      # the output of head 1 of layer 2 is zero
    model(source, target)                          # as usual

Each is a context manager made of hooks, which are always removed. Several can be open at once. Layers are named as in
`probes.py`, and `*` matches any.

    heads       heads_off, heads_averaged, heads_even       output zero; the mean over tokens; uniform weights
    layers      layers_off, layers_averaged                 identity; add the mean over tokens
    tokens      tokens_hidden, tokens_averaged              masked as keys; replaced by the mean over tokens
    positions   positions_off, positions_averaged           removed; at the input the mean over positions
    the rest    mask_off, scale_off                         no causal mask; no 1 / √d_k
    patching    patched                                     a state of another input

    B batch, H heads, T tokens, S keys, D width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import Probe, choose, probes
from clearhead.look.record import span
from clearhead.nn import (
    Explicit,
    Fused,
    InputPositions,
    Mask,
    MultiHeadAttention,
    NoRelativePositions,
)
from clearhead.nn.scores import scaled_dot

Kernel = Fused | Explicit
ChangeHeads = Callable[[Tensor, tuple[Any, ...]], Tensor]  # output of heads (B, H, T, V), kernel inputs -> new output
ChangeInputs = Callable[[tuple[Any, ...]], tuple[Any, ...]]  # inputs of a module -> new inputs
ChangeOutput = Callable[[Tensor, tuple[Any, ...]], Tensor]  # output of a module, its inputs -> new output


# --- heads ---


@contextmanager
def heads_off(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Iterator[None]:
    """The output of some heads, or all, of the layers `encoder.2.self`, `decoder.*.cross`, … is zero."""
    with _changed_heads(model, layers, heads, lambda mixed, _: torch.zeros_like(mixed)):
        yield


@contextmanager
def heads_averaged(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Iterator[None]:
    """The output of the heads is its mean over tokens, which says nothing about any single token."""
    with _changed_heads(model, layers, heads, lambda mixed, _: mixed.mean((0, 2), keepdim=True).expand_as(mixed)):
        yield


@contextmanager
def heads_even(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Iterator[None]:
    """The heads look at all visible keys alike: their output is the mean of the values."""
    with _changed_heads(model, layers, heads, _even):
        yield


def _even(_mixed: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    q, k, v, mask, offset, _bias = inputs
    uniform = Explicit(score=lambda q, k: q.new_zeros(*q.shape[:-1], k.size(-2)))
    even: Tensor = uniform(q, k, v, mask, offset, None)
    return even


@contextmanager
def _changed_heads(model: nn.Module, layers: str, heads: Sequence[int] | None, change: ChangeHeads) -> Iterator[None]:
    """Change the output of some heads of some layers."""
    with ExitStack() as hooks:
        for name, (kernel, count) in attention_layers(model, layers).items():
            chosen = _chosen(name, heads, count)
            hooks.enter_context(_changed_output(kernel, _for_some(chosen, change)))
        yield


def _for_some(chosen: Tensor, change: ChangeHeads) -> ChangeOutput:
    """Change the chosen heads (H, 1, 1) only."""
    return lambda mixed, inputs: torch.where(chosen.to(mixed.device), change(mixed, inputs), mixed)


def _chosen(name: str, heads: Sequence[int] | None, count: int) -> Tensor:
    """(H, 1, 1) boolean."""
    for head in heads or []:
        if not 0 <= head < count:
            raise ProbeError(f"{name} has no head {head}; choose from {span(count)}")
    selected = range(count) if heads is None else heads
    return torch.tensor([head in selected for head in range(count)]).view(-1, 1, 1)


def attention_layers(model: nn.Module, layers: str = "*") -> dict[str, tuple[Kernel, int]]:
    """The attention layers that match a pattern such as `encoder.2.self`: the kernel and the heads of each."""
    found = choose(probes(model), [f"{layers}.mixed"])
    fixed = [name for name, probe in found.items() if not isinstance(probe.module, Fused | Explicit)]
    if fixed:
        raise ProbeError(
            f"{fixed[0].removesuffix('.mixed')} belongs to a recurrent network, which has no heads to change"
        )
    return {name.removesuffix(".mixed"): _kernel(probe) for name, probe in found.items()}


def _kernel(probe: Probe) -> tuple[Kernel, int]:
    kernel: Any = probe.module
    return kernel, probe.heads or 1


# --- layers ---


@contextmanager
def layers_off(model: nn.Module, layers: str) -> Iterator[None]:
    """The blocks `encoder.2`, `decoder.*`, … return their input."""
    with _changed_blocks(model, layers, lambda _output, inputs: inputs[0]):
        yield


@contextmanager
def layers_averaged(model: nn.Module, layers: str) -> Iterator[None]:
    """The blocks add the same vector to every token: the mean of what they add."""
    with _changed_blocks(model, layers, _add_mean):
        yield


def _add_mean(output: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    added = (output - inputs[0]).mean((0, 1), keepdim=True)
    changed: Tensor = inputs[0] + added
    return changed


# --- tokens ---


@contextmanager
def tokens_hidden(model: nn.Module, layers: str, tokens: Sequence[int]) -> Iterator[None]:
    """No query of the attention layers `encoder.*.self`, … sees these keys."""

    def hide(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, *rest = inputs
        shown = torch.ones(1, k.size(-2), dtype=torch.bool, device=k.device)
        shown[:, _existing(tokens, k.size(-2))] = False
        return q, k, v, mask & shown, *rest

    with _changed_kernel_inputs(model, layers, hide):
        yield


@contextmanager
def tokens_averaged(model: nn.Module, state: str, tokens: Sequence[int]) -> Iterator[None]:
    """In a state `encoder.embedded`, `decoder.1.hidden`, … these tokens are replaced by the mean of all tokens."""

    def average(state: Tensor) -> Tensor:
        changed = state.clone()
        changed[:, _existing(tokens, state.size(1))] = state.mean(1, keepdim=True)
        return changed

    with _changed_states(model, state, average):
        yield


# --- mask, scale, positions ---


@contextmanager
def mask_off(model: nn.Module, layers: str = "*") -> Iterator[None]:
    """Every query sees the whole sequence, also later positions; padding stays hidden."""

    def unmask(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, *rest = inputs
        same_for_all = mask.table is not None and mask.table.size(-2) == 1
        return q, k, v, Mask(table=mask.table if same_for_all else None), *rest

    with _changed_kernel_inputs(model, layers, unmask):
        yield


@contextmanager
def scale_off(model: nn.Module, layers: str = "*") -> Iterator[None]:
    """Scores are q · k, without 1 / √d_k."""
    for name, (kernel, _) in attention_layers(model, layers).items():
        if kernel.score is not scaled_dot:
            raise ProbeError(f"{name} has no scale to switch off: its score is not the scaled dot product")

    def unscale(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, *rest = inputs
        return q * math.sqrt(q.size(-1)), *rest

    with _changed_kernel_inputs(model, layers, unscale):
        yield


@contextmanager
def positions_off(model: nn.Module) -> Iterator[None]:
    """Positions are removed, at the input and inside the heads."""
    with ExitStack() as parts:
        for part in _input_positions(model):
            parts.enter_context(part.changed(torch.zeros_like))
        for layer in model.modules():
            if isinstance(layer, MultiHeadAttention):
                parts.enter_context(_swapped(layer, "relative", NoRelativePositions()))
        yield


@contextmanager
def positions_averaged(model: nn.Module) -> Iterator[None]:
    """At the input every token gets the mean of the position vectors."""
    found = _input_positions(model)
    if not found:
        raise ProbeError("this model has no position vectors at its input to average; positions_off removes positions")
    with ExitStack() as parts:
        for part in found:
            parts.enter_context(part.changed(lambda vectors: vectors.mean(-2, keepdim=True).expand_as(vectors)))
        yield


def _input_positions(model: nn.Module) -> list[InputPositions]:
    return [part for part in model.modules() if isinstance(part, InputPositions) and part.has_vectors]


@contextmanager
def _swapped(module: nn.Module, name: str, part: Any) -> Iterator[None]:
    """Replace an attribute of a module."""
    original = getattr(module, name)
    setattr(module, name, part)
    try:
        yield
    finally:
        setattr(module, name, original)


# --- patching ---


@contextmanager
def patched(model: nn.Module, state: str, value: Tensor, tokens: Sequence[int] | None = None) -> Iterator[None]:
    """Replace a state by that of another run, (B, T, D) as `capture` recorded it; or only some tokens of it.

    It can be the input or output of a block (`encoder.embedded`, `encoder.2.hidden`), the output of a sublayer
    (`encoder.2.self.output`, `encoder.2.feed_forward.output`), or its inner units (`encoder.2.feed_forward.inner`).
    """

    def put(own: Tensor) -> Tensor:
        if value.shape[1:] != own.shape[1:] or len(value) not in (1, len(own)):
            raise ShapeError(
                f"{state} has the shape {tuple(own.shape)} and cannot be patched with {tuple(value.shape)}"
            )
        taken = torch.zeros(own.size(1), 1, dtype=torch.bool, device=own.device)
        taken[range(own.size(1)) if tokens is None else _existing(tokens, own.size(1))] = True
        return torch.where(taken, value.to(own), own)

    with _changed_states(model, state, put):
        yield


def _existing(tokens: Sequence[int], count: int) -> list[int]:
    for token in tokens:
        if not 0 <= token < count:
            raise ProbeError(f"there is no token {token}; choose from {span(count)}")
    return list(tokens)


# --- hooks ---

INPUTS = (".embedded", ".feed_forward.inner")  # states that are the input of a module
OUTPUTS = (".hidden", ".output")  # states that are the output of a module


@contextmanager
def _changed_states(model: nn.Module, pattern: str, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change every state that matches the pattern."""
    with ExitStack() as hooks:
        for name, module in _states(model, pattern).items():
            if name.endswith(INPUTS):
                hooks.enter_context(_changed_inputs(module, lambda inputs: (change(inputs[0]), *inputs[1:])))
            else:
                hooks.enter_context(_changed_output(module, lambda output, _: change(output)))
        yield


@contextmanager
def _changed_blocks(model: nn.Module, layers: str, change: ChangeOutput) -> Iterator[None]:
    with ExitStack() as hooks:
        for block in _states(model, f"{layers}.hidden").values():
            hooks.enter_context(_changed_output(block, change))
        yield


def _states(model: nn.Module, pattern: str) -> dict[str, nn.Module]:
    """The states that match a pattern, and the module whose input or output each is."""
    found = {name: probe.module for name, probe in choose(probes(model), [pattern]).items()}
    for name in found:
        if ".cell." in name or not name.endswith(INPUTS + OUTPUTS):
            raise ProbeError(
                f"{name} cannot be changed; choose a state of a block that ends in {', '.join(INPUTS + OUTPUTS)}"
            )
    return found


@contextmanager
def _changed_kernel_inputs(model: nn.Module, layers: str, change: ChangeInputs) -> Iterator[None]:
    with ExitStack() as hooks:
        for kernel, _ in attention_layers(model, layers).values():
            hooks.enter_context(_changed_inputs(kernel, change))
        yield


@contextmanager
def _changed_output(module: nn.Module, change: ChangeOutput) -> Iterator[None]:
    hook = module.register_forward_hook(lambda _, inputs, output: change(output, inputs))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _changed_inputs(module: nn.Module, change: ChangeInputs) -> Iterator[None]:
    hook = module.register_forward_pre_hook(lambda _, inputs: change(inputs))
    try:
        yield
    finally:
        hook.remove()
