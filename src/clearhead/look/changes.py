"""Changes inside a model as data: what a person drags in the X-ray, and what a link keeps.

    change = WeightChange(layer="decoder.1.cross", head=2, query=3, key=1, weight=0.9)
    with changed(model.network, [change]):
        model.look("She has a red car.")           # that weight is 0.9, and everything after it follows

Each change opens an intervention; those of `interventions.py` change whole heads, layers and states, those below one
number: a weight, a pair of the mask, the place of a token. Their indices count from the first token of a text, so they
hold for a whole forward pass, not for steps over a cache: `Uncached` generates with whole passes.

    B batch, H heads, T queries, S keys, D width, V vocabulary
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look.attention import STRIP
from clearhead.look.interventions import (
    Intervention,
    Kernel,
    attention_layers,
    heads_scaled,
    kernel_inputs_changed,
    layers_off,
    mask_off,
    positions_off,
    states_changed,
)
from clearhead.look.probes import probes, removing, stacks
from clearhead.look.record import index_range
from clearhead.nn import (
    Explicit,
    InputPositions,
    Mask,
    MultiHeadAttention,
    NoRelativePositions,
    RelativePositions,
    softmax,
)
from clearhead.nn.positions import Bias, Rotary, Start

Name = Annotated[str, Field(max_length=60)]
Index = Annotated[int, Field(ge=0, le=10_000)]


class Change(BaseModel, ABC):
    """One thing that is different from the original."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        """Change the network inside a `with` block."""


class WeightChange(Change):
    """One attention weight; the others of its row keep their proportions, so that it still sums to 1."""

    kind: Literal["weight"] = "weight"
    layer: Name
    head: Index
    query: Index
    key: Index
    weight: Annotated[float, Field(ge=0, le=1)]

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        return weight_set(network, known_layer(network, self.layer), self.head, self.query, self.key, self.weight)


class HeadChange(Change):
    """The output of a head, multiplied; 0 switches it off."""

    kind: Literal["head"] = "head"
    layer: Name
    head: Index
    factor: Annotated[float, Field(ge=-10, le=10)]

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        return heads_scaled(network, known_layer(network, self.layer), [self.head], self.factor)


class BlockChange(Change):
    """A block that adds nothing."""

    kind: Literal["block"] = "block"
    block: Name

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        if f"{self.block}.hidden" not in probes(network):
            raise ProbeError(f"{self.block} is not a block of this model")
        return layers_off(network, self.block)


class SeenChange(Change):
    """Whether one query of a layer sees one key."""

    kind: Literal["seen"] = "seen"
    layer: Name
    query: Index
    key: Index
    seen: bool

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        return pair_seen(network, known_layer(network, self.layer), self.query, self.key, self.seen)


class MaskChange(Change):
    """No causal mask, in one layer or in all."""

    kind: Literal["mask"] = "mask"
    layer: Name = ""

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        return mask_off(network, known_layer(network, self.layer) if self.layer else "*")


class PositionsChange(Change):
    """No positions at all."""

    kind: Literal["positions"] = "positions"

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        return positions_off(network)


class PlaceChange(Change):
    """A token that stands at another place than it does."""

    kind: Literal["place"] = "place"
    stack: Literal["encoder", "decoder"]
    token: Index
    place: Index

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        return token_moved(network, self.stack, self.token, self.place)


class PatchChange(Change):
    """A vector of one token, the input or output of a block, taken from another text (the donor)."""

    kind: Literal["patch"] = "patch"
    state: Name  # encoder.embedded, decoder.1.hidden, …
    token: Index
    donor: Annotated[str, Field(max_length=2000)]
    taken: Index  # the token of the donor

    def open(self, network: nn.Module, vectors: Mapping[Change, Tensor]) -> Intervention:
        return token_patched(network, self.state, self.token, vectors[self])


AnyChange = Annotated[
    WeightChange | HeadChange | BlockChange | SeenChange | MaskChange | PositionsChange | PlaceChange | PatchChange,
    Field(discriminator="kind"),
]


@contextmanager
def changed(
    network: nn.Module, changes: Sequence[Change], vectors: Mapping[Change, Tensor] | None = None
) -> Iterator[None]:
    """Inside the block every change is made; `vectors` (D,) are those that patches put in."""
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change.open(network, vectors or {}))
        yield


def known_layer(network: nn.Module, name: str) -> str:
    """The name of an attention layer; patterns and unknown names are refused."""
    known = attention_layers(network) if any(each.endswith(".mixed") for each in probes(network)) else {}
    if name not in known:
        raise ProbeError(f"{name!r} is not an attention layer of this model; it has {', '.join(known) or 'none'}")
    return name


# --- one weight ---


def weight_set(model: nn.Module, layer: str, head: int, query: int, key: int, weight: float) -> Intervention:
    """One attention weight has this value; the others of its row keep their proportions, and the row sums to 1.

    It is the score that is shifted, so the weights that probes read are the changed ones too. In a text that ends
    before the query or the key nothing changes.
    """
    [(kernel, heads)] = attention_layers(model, layer).values()
    if not 0 <= head < heads:
        raise ProbeError(f"{layer} has no head {head}; choose from {index_range(heads)}")
    if kernel.normalize is not softmax:
        raise ProbeError(f"the weights of {layer} are not those of a softmax: they cannot be set")

    def change(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, offset, bias = inputs
        row = query - offset
        if not 0 <= row < q.size(-2) or key >= k.size(-2):
            return inputs
        shift = torch.zeros(*q.shape[:3], k.size(-2), dtype=torch.float64, device=q.device)  # (B, H, T, S)
        shift[:, head, row] = _row_shift(kernel, inputs, head, row, key, weight, query, layer)
        return q, k, v, mask, offset, _shifted(bias, shift.squeeze(0), offset, q.dtype)

    return kernel_inputs_changed(model, layer, change)


def _row_shift(
    kernel: Kernel, inputs: tuple[Any, ...], head: int, row: int, key: int, weight: float, query: int, layer: str
) -> Tensor:
    """(B, S): what is added to the scores of a row, so that its softmax gives the key this weight."""
    q, k, _, mask, offset, bias = inputs
    queries, keys = q.size(-2), k.size(-2)
    if mask.window is not None and q.size(1) * queries * keys > STRIP:
        raise ProbeError(f"the text is too long to change a weight of {layer}, which looks through a window")
    visible = mask.table_of(queries, keys, offset, q.device).expand(len(q), queries, keys)[:, row]  # (B, S)
    if not visible[:, key].all():
        raise ProbeError(f"token {query} of {layer} cannot see key {key}: the mask hides it")
    others = visible.clone()
    others[:, key] = False
    if weight < 1 and not others.any(-1).all():
        raise ProbeError(f"token {query} of {layer} sees one key alone, and the weights of a row sum to 1")
    plain = Explicit(kernel.score, normalize=lambda scores, _mask: scores)
    scores = plain.weights(q, k, Mask(), offset, bias)[:, head, row].double()  # (B, S)
    shift = torch.zeros_like(scores)
    if weight == 1:
        return shift.masked_fill(others, -math.inf)
    rest = scores.masked_fill(~others, -math.inf).logsumexp(-1)  # (B,)
    odds = math.log(weight / (1 - weight)) if weight > 0 else -math.inf
    shift[:, key] = odds + rest - scores[:, key]
    return shift


def _shifted(bias: Bias | None, shift: Tensor, offset: int, dtype: torch.dtype) -> Bias:
    """A bias with a shift (…, H, T, S) added to it."""

    def shifted(queries: Tensor, keys: Tensor) -> Tensor:
        added = shift[..., queries - offset, :][..., keys].to(dtype)
        return added if bias is None else added + bias(queries, keys)

    return shifted


# --- one pair of the mask ---


def pair_seen(model: nn.Module, layers: str, query: int, key: int, seen: bool) -> Intervention:
    """One query of the layers sees one key, or does not; in a text that ends before either nothing changes."""

    def change(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, mask, offset, *rest = inputs
        row, (queries, keys) = query - offset, (q.size(-2), k.size(-2))
        if not 0 <= row < queries or key >= keys:
            return inputs
        table = mask.table_of(queries, keys, offset, q.device)
        table = table.expand(*table.shape[:-2], queries, keys).clone()  # (T, S) or (B, T, S)
        table[..., row, key] = seen
        return q, k, v, Mask(table=table), offset, *rest

    return kernel_inputs_changed(model, layers, change)


# --- the place of one token ---


@contextmanager
def token_moved(model: nn.Module, stack: str, token: int, place: int) -> Iterator[None]:
    """A token of a stack has the position of another place, at the input and inside the heads of self-attention."""
    found = stacks(model)
    if stack not in found:
        raise ProbeError(f"this model has no {stack}; it has {', '.join(found)}")
    order = [*found, ""]
    upcoming = order[0]  # the stack whose input is being made: one embedding may serve two stacks

    def begin(*_: Any) -> None:
        nonlocal upcoming
        upcoming = order[0]

    def entered(name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            nonlocal upcoming
            upcoming = order[order.index(name) + 1]

        return enter

    def moved(part: InputPositions, vectors: Tensor) -> Tensor:
        if upcoming != stack or token >= vectors.size(-2):
            return vectors
        vectors = vectors.clone()
        vectors[..., token, :] = original[part](1, place)[..., 0, :].to(vectors)
        return vectors

    inputs = [part for part in model.modules() if isinstance(part, InputPositions) and part.has_vectors]
    original = {part: part.encode for part in inputs}
    layers = [
        part
        for part in found[stack].modules()
        if isinstance(part, MultiHeadAttention) and not isinstance(part.relative, NoRelativePositions)
    ]
    with ExitStack() as parts:
        hooks = [model.register_forward_pre_hook(begin)]
        hooks += [each.register_forward_pre_hook(entered(name)) for name, each in found.items()]
        parts.enter_context(removing(hooks))
        for part in inputs:
            parts.enter_context(part.changed(partial(moved, part)))
        for layer in layers:
            parts.callback(setattr, layer, "relative", layer.relative)
            layer.relative = _moved_inside(layer.relative, token, place)
        yield


def _moved_inside(relative: RelativePositions, token: int, place: int) -> RelativePositions:
    """The same scheme with one token at another place."""
    found, own = copy.copy(relative), relative.bias
    if own is not None:

        def bias(queries: Tensor, keys: Tensor) -> Tensor:
            return own(*(torch.where(each == token, place, each) for each in (queries, keys)))

        vars(found)["bias"] = bias
    if isinstance(relative, Rotary):
        angles = relative.cos_sin

        def cos_sin(start: Start, length: int) -> tuple[Tensor, Tensor]:
            tables = angles(start, length)
            if isinstance(start, int) and start <= token < start + length:
                tables = tables[0].clone(), tables[1].clone()
                for table, there in zip(tables, angles(place, 1), strict=True):
                    table[token - start] = there[0]
            return tables

        vars(found)["cos_sin"] = cos_sin
    elif type(relative).rotate is not RelativePositions.rotate:
        raise ProbeError(f"the positions {relative.scheme} turn queries and keys in a way of their own: keep the place")
    return found


# --- one vector ---


def token_patched(model: nn.Module, state: str, token: int, vector: Tensor) -> Intervention:
    """One token of a state, `encoder.embedded` or `decoder.1.hidden`, has this vector (D,)."""
    if state not in probes(model) or not state.endswith((".embedded", ".hidden")) or ".cell." in state:
        raise ProbeError(f"{state!r} is not the input or output of a block of this model, so it cannot be patched")
    return states_changed(model, state, lambda own: _with_vector(own, token, vector))


def _with_vector(own: Tensor, token: int, vector: Tensor) -> Tensor:
    if vector.size(-1) != own.size(-1):
        raise ProbeError(f"a vector of {vector.size(-1)} numbers does not fit a state of {own.size(-1)}")
    if token >= own.size(1):  # a text that ends before it
        return own
    found = own.clone()
    found[:, token] = vector.to(own)
    return found


# --- generation by whole passes ---


class Uncached:
    """A network as a stepper without a cache: every step reads the whole text, so that changes by index hold."""

    def __init__(self, network: nn.Module, sources: Sequence[Tensor]):
        self.network, self.sources = network, tuple(sources)

    def start(self) -> Tensor:
        """The tokens read so far, (B, T): none."""
        return torch.zeros(1, 0, dtype=torch.long)

    @torch.no_grad()
    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The next tokens (B, T) -> logits (B, T, V) of the token after each."""
        whole = torch.cat((state.to(ids), ids), dim=1)
        sources = (each.expand(len(whole), *each.shape[1:]) for each in self.sources)
        logits: Tensor = self.network(*sources, whole)
        return logits[:, -ids.size(1) :], whole

    def reorder(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]
