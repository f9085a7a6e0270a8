"""Interventions: change one thing inside a model, and see what it was good for.

    with heads_off(model, "encoder.2.self", heads=[1]):
        model(source, target)                      # as if head 1 of layer 2 wrote nothing
    model(source, target)                          # as always

Each is a context manager made of hooks: while it is open the model computes something else, and afterwards, whatever
happens, it is as it was. Several can be open at once. Layers are named as in `probes.py`, and `*` stands for any.

    heads       heads_off, heads_averaged, heads_even       write nothing; the same for every token; look everywhere
    layers      layers_off, layers_averaged                 pass on what they read; add the same to every token
    tokens      tokens_hidden, tokens_averaged              cannot be looked at; are as all tokens are on average
    positions   positions_off, positions_averaged           no order; at the input the same for every token
    the rest    mask_off, scale_off                         see also what comes after; no 1 / √d_k
    patching    patched                                     a state of another input in the place of this one's

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
from clearhead.look.capture import choose
from clearhead.look.look import span
from clearhead.look.probes import Probe, probes
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
Mixed = Callable[[Tensor, tuple[Any, ...]], Tensor]  # what heads wrote (B, H, T, V), what their kernel read -> instead
Given = Callable[[tuple[Any, ...]], tuple[Any, ...]]  # what a module is given -> instead
Gave = Callable[[Tensor, tuple[Any, ...]], Tensor]  # what a module gave, what it was given -> instead


# --- heads ---


@contextmanager
def heads_off(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Iterator[None]:
    """Some heads, or all, of the layers `encoder.2.self`, `decoder.*.cross`, … write nothing."""
    with _rewritten(model, layers, heads, lambda mixed, _: torch.zeros_like(mixed)):
        yield


@contextmanager
def heads_averaged(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Iterator[None]:
    """They write for every token what they write on average: what is left is nothing about any one of them."""
    with _rewritten(model, layers, heads, lambda mixed, _: mixed.mean((0, 2), keepdim=True).expand_as(mixed)):
        yield


@contextmanager
def heads_even(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Iterator[None]:
    """They look at every key that they may see alike, and write the mean of the values."""
    with _rewritten(model, layers, heads, _even):
        yield


def _even(_mixed: Tensor, given: tuple[Any, ...]) -> Tensor:
    q, k, v, mask, offset, _bias = given
    alike = Explicit(score=lambda q, k: q.new_zeros(*q.shape[:-1], k.size(-2)))
    even: Tensor = alike(q, k, v, mask, offset, None)
    return even


@contextmanager
def _rewritten(model: nn.Module, layers: str, heads: Sequence[int] | None, instead: Mixed) -> Iterator[None]:
    """Some heads of some layers write something else."""
    with ExitStack() as open_hooks:
        for name, (kernel, count) in attention_layers(model, layers).items():
            chosen = _chosen(name, heads, count)
            open_hooks.enter_context(_gives(kernel, _for_some(chosen, instead)))
        yield


def _for_some(chosen: Tensor, instead: Mixed) -> Gave:
    """`instead` for the chosen heads (H, 1, 1), and for the others what they wrote."""
    return lambda mixed, given: torch.where(chosen.to(mixed.device), instead(mixed, given), mixed)


def _chosen(name: str, heads: Sequence[int] | None, count: int) -> Tensor:
    """(H, 1, 1) boolean."""
    for head in heads or []:
        if not 0 <= head < count:
            raise ProbeError(f"{name} has no head {head}; choose from {span(count)}")
    wanted = range(count) if heads is None else heads
    return torch.tensor([head in wanted for head in range(count)]).view(-1, 1, 1)


def attention_layers(model: nn.Module, layers: str = "*") -> dict[str, tuple[Kernel, int]]:
    """The attention layers that a pattern names, `encoder.2.self` and so on: the kernel of each and its heads."""
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
    """The blocks `encoder.2`, `decoder.*`, … pass on what they read."""
    with _each_block_gives(model, layers, lambda _wrote, given: given[0]):
        yield


@contextmanager
def layers_averaged(model: nn.Module, layers: str) -> Iterator[None]:
    """They add to every token what they add on average."""
    with _each_block_gives(model, layers, _add_the_mean):
        yield


def _add_the_mean(wrote: Tensor, given: tuple[Any, ...]) -> Tensor:
    added = (wrote - given[0]).mean((0, 1), keepdim=True)
    instead: Tensor = given[0] + added
    return instead


# --- tokens ---


@contextmanager
def tokens_hidden(model: nn.Module, layers: str, tokens: Sequence[int]) -> Iterator[None]:
    """No query of the attention layers `encoder.*.self`, … sees these keys."""

    def hide(given: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, *rest = given
        shown = torch.ones(1, k.size(-2), dtype=torch.bool, device=k.device)
        shown[:, _existing(tokens, k.size(-2))] = False
        return q, k, v, mask & shown, *rest

    with _each_kernel_reads(model, layers, hide):
        yield


@contextmanager
def tokens_averaged(model: nn.Module, state: str, tokens: Sequence[int]) -> Iterator[None]:
    """In a state `encoder.embedded`, `decoder.1.hidden`, … these tokens are what all tokens are on average."""

    def average(wrote: Tensor) -> Tensor:
        instead = wrote.clone()
        instead[:, _existing(tokens, wrote.size(1))] = wrote.mean(1, keepdim=True)
        return instead

    with _each_state(model, state, average):
        yield


# --- mask, scale, positions ---


@contextmanager
def mask_off(model: nn.Module, layers: str = "*") -> Iterator[None]:
    """Every query sees the whole sequence, also what comes after it; padding stays hidden."""

    def open_up(given: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, *rest = given
        same_for_all = mask.table is not None and mask.table.size(-2) == 1
        return q, k, v, Mask(table=mask.table if same_for_all else None), *rest

    with _each_kernel_reads(model, layers, open_up):
        yield


@contextmanager
def scale_off(model: nn.Module, layers: str = "*") -> Iterator[None]:
    """Scores are q · k, without 1 / √d_k."""
    for name, (kernel, _) in attention_layers(model, layers).items():
        if kernel.score is not scaled_dot:
            raise ProbeError(f"{name} has no scale to switch off: its score is not the scaled dot product")

    def unscale(given: tuple[Any, ...]) -> tuple[Any, ...]:
        q, *rest = given
        return q * math.sqrt(q.size(-1)), *rest

    with _each_kernel_reads(model, layers, unscale):
        yield


@contextmanager
def positions_off(model: nn.Module) -> Iterator[None]:
    """The order of the tokens is left out, at the input and inside the heads."""
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
        raise ProbeError("this model has no position vectors at its input to average; positions_off leaves order out")
    with ExitStack() as parts:
        for part in found:
            parts.enter_context(part.changed(lambda vectors: vectors.mean(-2, keepdim=True).expand_as(vectors)))
        yield


def _input_positions(model: nn.Module) -> list[InputPositions]:
    return [part for part in model.modules() if isinstance(part, InputPositions) and part.has_vectors]


@contextmanager
def _swapped(module: nn.Module, name: str, part: Any) -> Iterator[None]:
    """A module with another part."""
    own = getattr(module, name)
    setattr(module, name, part)
    try:
        yield
    finally:
        setattr(module, name, own)


# --- patching ---


@contextmanager
def patched(model: nn.Module, state: str, value: Tensor, tokens: Sequence[int] | None = None) -> Iterator[None]:
    """Put a state of another run, (B, T, D) as `capture` gave it, in the place of this one's; or some tokens of it.

    It can be what a block reads or writes (`encoder.embedded`, `encoder.2.hidden`), what a part of it writes
    (`encoder.2.self.output`, `encoder.2.feed_forward.output`), or the units inside (`encoder.2.feed_forward.inner`).
    """

    def put(own: Tensor) -> Tensor:
        if value.shape[1:] != own.shape[1:] or len(value) not in (1, len(own)):
            raise ShapeError(
                f"{state} has the shape {tuple(own.shape)} and cannot be patched with {tuple(value.shape)}"
            )
        taken = torch.zeros(own.size(1), 1, dtype=torch.bool, device=own.device)
        taken[range(own.size(1)) if tokens is None else _existing(tokens, own.size(1))] = True
        return torch.where(taken, value.to(own), own)

    with _each_state(model, state, put):
        yield


def _existing(tokens: Sequence[int], count: int) -> list[int]:
    for token in tokens:
        if not 0 <= token < count:
            raise ProbeError(f"there is no token {token}; choose from {span(count)}")
    return list(tokens)


# --- hooks ---

READ = (".embedded", ".feed_forward.inner")  # states that are seen where they are read
WRITTEN = (".hidden", ".output")  # states that are seen where they are written


@contextmanager
def _each_state(model: nn.Module, pattern: str, instead: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """What a state is becomes something else, wherever the pattern names one."""
    with ExitStack() as hooks:
        for name, module in _states(model, pattern).items():
            if name.endswith(READ):
                hooks.enter_context(_reads(module, lambda given: (instead(given[0]), *given[1:])))
            else:
                hooks.enter_context(_gives(module, lambda wrote, _: instead(wrote)))
        yield


@contextmanager
def _each_block_gives(model: nn.Module, layers: str, instead: Gave) -> Iterator[None]:
    with ExitStack() as hooks:
        for block in _states(model, f"{layers}.hidden").values():
            hooks.enter_context(_gives(block, instead))
        yield


def _states(model: nn.Module, pattern: str) -> dict[str, nn.Module]:
    """The states that a pattern names, and the module that reads or writes each."""
    found = {name: probe.module for name, probe in choose(probes(model), [pattern]).items()}
    for name in found:
        if ".cell." in name or not name.endswith(READ + WRITTEN):
            raise ProbeError(
                f"{name} cannot be changed; choose a state of a block that ends in {', '.join(READ + WRITTEN)}"
            )
    return found


@contextmanager
def _each_kernel_reads(model: nn.Module, layers: str, instead: Given) -> Iterator[None]:
    with ExitStack() as hooks:
        for kernel, _ in attention_layers(model, layers).values():
            hooks.enter_context(_reads(kernel, instead))
        yield


@contextmanager
def _gives(module: nn.Module, instead: Gave) -> Iterator[None]:
    """A module gives something else than it computed."""
    hook = module.register_forward_hook(lambda _, given, gave: instead(gave, given))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _reads(module: nn.Module, instead: Given) -> Iterator[None]:
    """A module computes with something else than it was given."""
    hook = module.register_forward_pre_hook(lambda _, given: instead(given))
    try:
        yield
    finally:
        hook.remove()
