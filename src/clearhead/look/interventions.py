"""Interventions: change one thing inside a model, and measure its effect.

    with heads_off(model, "encoder.2.self", heads=[1]):
        model(source, target)                      # the output of head 1 of layer 2 is zero
    model(source, target)                          # as usual

    found = effects(model, (source, target), {"no head 1": lambda: heads_off(model, "encoder.2.self", [1])}, answers)
    found.each[0].change                           # how much the loss rises without it

Each is a context manager made of hooks, which are always removed. Several can be open at once. Layers are named as in
`probes.py`, and `*` matches any. Changes of single numbers are in `changes.py`.

    heads       heads_off, heads_scaled                     output zero; output multiplied
                heads_averaged, heads_even                  the mean over tokens; uniform weights
    layers      layers_off, layers_averaged                 identity; add the mean over tokens
    tokens      tokens_hidden, tokens_averaged              masked as keys; replaced by the mean over tokens
    positions   positions_off, positions_averaged           removed; at the input the mean over positions
    the rest    mask_off, scale_off                         no causal mask; no 1 / √d_k
    patching    patched, trace                              a state of another input; each of its states in turn

    B batch, H heads, T tokens, S keys, D width, V vocabulary or labels, L states
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import capture, matching_probes, probes, removing
from clearhead.look.record import index_range, rounded
from clearhead.nn import Explicit, Fused, InputPositions, Mask, MultiHeadAttention, NoRelativePositions
from clearhead.nn.scores import scaled_dot

Kernel = Fused | Explicit
Intervention = AbstractContextManager[None]
Measure = Callable[[Tensor], Tensor]  # logits (B, T, V) or (B, V) -> one number
ChangeInputs = Callable[[tuple[Any, ...]], tuple[Any, ...]]  # inputs of a module -> new inputs
ChangeOutput = Callable[[Tensor, tuple[Any, ...]], Tensor]  # output of a module, its inputs -> new output


# --- heads ---


def heads_off(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Intervention:
    """The output of some heads, or all, of the layers `encoder.2.self`, `decoder.*.cross`, … is zero."""
    return _changed_heads(model, layers, heads, lambda mixed, _: torch.zeros_like(mixed))


def heads_scaled(model: nn.Module, layers: str, heads: Sequence[int] | None, factor: float) -> Intervention:
    """The output of the heads is multiplied by a factor."""
    return _changed_heads(model, layers, heads, lambda mixed, _: factor * mixed)


def heads_averaged(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Intervention:
    """The output of the heads is its mean over tokens, which says nothing about any single token."""
    return _changed_heads(model, layers, heads, lambda mixed, _: mixed.mean((0, 2), keepdim=True).expand_as(mixed))


def heads_even(model: nn.Module, layers: str, heads: Sequence[int] | None = None) -> Intervention:
    """The heads look at all visible keys alike: their output is the mean of the values."""
    return _changed_heads(model, layers, heads, _even)


def _even(_mixed: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    q, k, v, mask, offset, _bias = inputs
    uniform = Explicit(score=lambda q, k: q.new_zeros(*q.shape[:-1], k.size(-2)))
    even: Tensor = uniform(q, k, v, mask, offset, None)
    return even


@contextmanager
def _changed_heads(model: nn.Module, layers: str, heads: Sequence[int] | None, change: ChangeOutput) -> Iterator[None]:
    """Change the output of some heads (B, H, T, V) of some layers."""

    def hook(chosen: Tensor) -> Callable[..., Tensor]:
        return lambda _, inputs, mixed: torch.where(chosen.to(mixed.device), change(mixed, inputs), mixed)

    found = attention_layers(model, layers)
    chosen = {name: _chosen(name, heads, count) for name, (_, count) in found.items()}
    with removing(kernel.register_forward_hook(hook(chosen[name])) for name, (kernel, _) in found.items()):
        yield


def _chosen(name: str, heads: Sequence[int] | None, count: int) -> Tensor:
    """(H, 1, 1) boolean."""
    for head in heads or []:
        if not 0 <= head < count:
            raise ProbeError(f"{name} has no head {head}; choose from {index_range(count)}")
    selected = range(count) if heads is None else heads
    return torch.tensor([head in selected for head in range(count)]).view(-1, 1, 1)


def attention_layers(model: nn.Module, layers: str = "*") -> dict[str, tuple[Kernel, int]]:
    """The attention layers that match a pattern such as `encoder.2.self`: the kernel and the heads of each."""
    found: dict[str, tuple[Kernel, int]] = {}
    for name, probe in matching_probes(probes(model), [f"{layers}.mixed"]).items():
        layer = name.removesuffix(".mixed")
        if not isinstance(probe.module, Fused | Explicit):
            raise ProbeError(f"{layer} belongs to a recurrent network, which has no heads to change")
        found[layer] = probe.module, probe.heads or 1
    return found


# --- layers ---


def layers_off(model: nn.Module, layers: str) -> Intervention:
    """The blocks `encoder.2`, `decoder.*`, … return their input."""
    return _changed_blocks(model, layers, lambda _output, inputs: inputs[0])


def layers_averaged(model: nn.Module, layers: str) -> Intervention:
    """The blocks add the same vector to every token: the mean of what they add."""
    return _changed_blocks(model, layers, _add_mean)


def _add_mean(output: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    added = (output - inputs[0]).mean((0, 1), keepdim=True)
    changed: Tensor = inputs[0] + added
    return changed


# --- tokens ---


def tokens_hidden(model: nn.Module, layers: str, tokens: Sequence[int]) -> Intervention:
    """No query of the attention layers `encoder.*.self`, … sees these keys."""

    def hide(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, *rest = inputs
        shown = torch.ones(1, k.size(-2), dtype=torch.bool, device=k.device)
        shown[:, _existing(tokens, k.size(-2))] = False
        return q, k, v, mask & shown, *rest

    return kernel_inputs_changed(model, layers, hide)


def tokens_averaged(model: nn.Module, state: str, tokens: Sequence[int]) -> Intervention:
    """In a state `encoder.embedded`, `decoder.1.hidden`, … these tokens are replaced by the mean of all tokens."""

    def average(state: Tensor) -> Tensor:
        changed = state.clone()
        changed[:, _existing(tokens, state.size(1))] = state.mean(1, keepdim=True)
        return changed

    return states_changed(model, state, average)


# --- mask, scale, positions ---


def mask_off(model: nn.Module, layers: str = "*") -> Intervention:
    """Every query sees the whole sequence, also later positions; padding stays hidden."""

    def unmask(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, *rest = inputs
        same_for_all = mask.table is not None and mask.table.size(-2) == 1
        return q, k, v, Mask(table=mask.table if same_for_all else None), *rest

    return kernel_inputs_changed(model, layers, unmask)


def scale_off(model: nn.Module, layers: str = "*") -> Intervention:
    """Scores are q · k, without 1 / √d_k."""
    for name, (kernel, _) in attention_layers(model, layers).items():
        if kernel.score is not scaled_dot:
            raise ProbeError(f"{name} has no scale to switch off: its score is not the scaled dot product")

    def unscale(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, *rest = inputs
        return q * math.sqrt(q.size(-1)), *rest

    return kernel_inputs_changed(model, layers, unscale)


@contextmanager
def positions_off(model: nn.Module) -> Iterator[None]:
    """Positions are removed, at the input and inside the heads."""
    with ExitStack() as parts:
        for part in _input_positions(model):
            parts.enter_context(part.changed(torch.zeros_like))
        for layer in model.modules():
            if isinstance(layer, MultiHeadAttention):
                parts.callback(setattr, layer, "relative", layer.relative)
                layer.relative = NoRelativePositions()
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


# --- patching ---


def patched(model: nn.Module, state: str, value: Tensor, tokens: Sequence[int] | None = None) -> Intervention:
    """Replace a state by that of another run, (B, T, D) as `capture` recorded it; or only some tokens of it.

    It can be the input or output of a block (`encoder.embedded`, `encoder.2.hidden`), the output of a sublayer
    (`encoder.2.self.output`, `encoder.2.feed_forward.output`), or its inner units (`encoder.2.feed_forward.inner`).
    """

    def put(own: Tensor) -> Tensor:
        if value.shape[1:] != own.shape[1:] or len(value) not in (1, len(own)):
            have, given = tuple(own.shape), tuple(value.shape)
            raise ShapeError(f"{state} has the shape {have} and cannot be patched with {given}")
        taken = torch.zeros(own.size(1), 1, dtype=torch.bool, device=own.device)
        taken[range(own.size(1)) if tokens is None else _existing(tokens, own.size(1))] = True
        return torch.where(taken, value.to(own), own)

    return states_changed(model, state, put)


def _existing(tokens: Sequence[int], count: int) -> list[int]:
    for token in tokens:
        if not 0 <= token < count:
            raise ProbeError(f"there is no token {token}; choose from {index_range(count)}")
    return list(tokens)


# --- hooks ---

INPUTS = (".embedded", ".feed_forward.inner")  # states that are the input of a module
OUTPUTS = (".hidden", ".output")  # states that are the output of a module


@contextmanager
def states_changed(model: nn.Module, pattern: str, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change every state that matches the pattern."""

    def changed_input(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return change(inputs[0]), *inputs[1:]

    with removing(
        module.register_forward_pre_hook(changed_input)
        if name.endswith(INPUTS)
        else module.register_forward_hook(lambda _, inputs, output: change(output))  # noqa: ARG005 - as torch calls it
        for name, module in _states(model, pattern).items()
    ):
        yield


@contextmanager
def _changed_blocks(model: nn.Module, layers: str, change: ChangeOutput) -> Iterator[None]:
    blocks = _states(model, f"{layers}.hidden").values()
    with removing(block.register_forward_hook(lambda _, inputs, output: change(output, inputs)) for block in blocks):
        yield


@contextmanager
def kernel_inputs_changed(model: nn.Module, layers: str, change: ChangeInputs) -> Iterator[None]:
    """Change queries, keys, values, mask, offset and bias of the attention layers that match the pattern."""
    kernels = [kernel for kernel, _ in attention_layers(model, layers).values()]
    with removing(kernel.register_forward_pre_hook(lambda _, inputs: change(inputs)) for kernel in kernels):
        yield


def _states(model: nn.Module, pattern: str) -> dict[str, nn.Module]:
    """The states that match a pattern, and the module whose input or output each is."""
    found = {name: probe.module for name, probe in matching_probes(probes(model), [pattern]).items()}
    for name in found:
        if ".cell." in name or not name.endswith(INPUTS + OUTPUTS):
            ends = ", ".join(INPUTS + OUTPUTS)
            raise ProbeError(f"{name} cannot be changed; choose a state of a block that ends in {ends}")
    return found


# --- effects ---


@dataclass(frozen=True, eq=False)
class Effect:
    """The effect of one intervention."""

    name: str
    logits: Tensor  # (B, T, V) or (B, V), with it
    divergence: Tensor  # (B, T) or (B,): KL(p without it || p with it), in nats
    flipped: float  # share of the likeliest answers that changed
    change: float | None  # of the loss, if the right answers are known


@dataclass(frozen=True, eq=False)
class Effects:
    """The answers of a model without interventions, and the effect of each."""

    logits: Tensor  # (B, T, V) or (B, V)
    loss: float | None
    each: list[Effect]

    def to_json(self) -> dict[str, Any]:
        """One row for each intervention, without the logits."""
        rows = [
            {"name": one.name, "divergence": float(one.divergence.mean()), "flipped": one.flipped, "change": one.change}
            for one in self.each
        ]
        return {"format": "clearhead-effects-1", "loss": self.loss, "effects": rows}


@torch.no_grad()
def effects(
    model: nn.Module,
    inputs: Sequence[Tensor],
    interventions: Mapping[str, Callable[[], Intervention]],
    answers: Tensor | None = None,
) -> Effects:
    """Call the model without and with each intervention; `answers` (B, T) or (B,), -100 where there is none."""
    before = model(*inputs)
    loss, found = _loss(before, answers), []
    for name, intervention in interventions.items():
        with intervention():
            after = model(*inputs)
        flipped = float((before.argmax(-1) != after.argmax(-1)).double().mean())
        changed = _loss(after, answers)
        rise = None if loss is None or changed is None else changed - loss
        found.append(Effect(name, after, divergence(before, after), flipped, rise))
    return Effects(before, loss, found)


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL(p || q) = Σ p log(p / q) of two logits (…, V) -> (…), in nats."""
    log_p, log_q = before.log_softmax(-1), after.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _loss(logits: Tensor, answers: Tensor | None) -> float | None:
    if answers is None:
        return None
    return float(F.cross_entropy(logits.reshape(-1, logits.size(-1)), answers.reshape(-1)))


@dataclass(frozen=True, eq=False)
class Trace:
    """How far each state of a donor, at each token, brings back the donor's answer."""

    states: list[str]  # L names
    values: Tensor  # (L, T): the measure with this one state of the donor
    own: float  # the measure without any patch
    donor: float  # the measure of the donor

    @property
    def recovered(self) -> Tensor:
        """(L, T): 0 = no effect, 1 = the answer of the donor."""
        return (self.values - self.own) / (self.donor - self.own)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "clearhead-trace-1",
            "states": self.states,
            "values": rounded(self.values),
            "own": self.own,
            "donor": self.donor,
        }


@torch.no_grad()
def trace(
    model: nn.Module, inputs: Sequence[Tensor], donor: Sequence[Tensor], measure: Measure, states: str = "*.hidden"
) -> Trace:
    """Patch the states of a donor, an input of equal length, one by one into the run of another input."""
    with capture(model, states) as theirs:
        answer = float(measure(model(*donor)))
    rows = []
    for name, state in theirs.items():
        row = []
        for token in range(state.size(1)):
            with patched(model, name, state, [token]):
                row.append(float(measure(model(*inputs))))
        rows.append(row)
    return Trace(list(theirs), torch.tensor(rows), float(measure(model(*inputs))), answer)
