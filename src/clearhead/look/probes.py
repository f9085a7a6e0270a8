"""Everything in a model that can be seen, by name: STACK.LAYER.PART.WHAT.

    encoder.2.self.weights           (B, H, T, S); so are scores; visible is (B, T, S)
    decoder.0.cross.query            (B, H, T, D); key and value (B, G, S, D), mixed (B, H, T, V), output (B, T, D)
    encoder.2.feed_forward.inner     (B, T, inner): what the second matrix reads; output (B, T, D)
    encoder.2.hidden                 (B, T, D): what block 2 wrote
    encoder.embedded                 (B, T, D): what block 0 reads
    decoder.0.cell.hidden            (B, T, D): the states of a recurrent layer; memory the cell states of an LSTM
    logits                           (B, T, V), or (B, V)

A stack is called decoder if it writes: a language model is a decoder without an encoder. A recurrent decoder that
attends does so in its layer 0.

    B batch, H heads, G key-value heads, T queries or tokens, S keys, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from clearhead.look.call import SEEN, AttentionCall
from clearhead.look.memory import cell_memory
from clearhead.models.base import Model
from clearhead.models.rnn import AttentionDecoder, ContextDecoder
from clearhead.nn import (
    Decoder,
    DecoderBlock,
    Encoder,
    Explicit,
    FlattenOutput,
    Fused,
    Mask,
    MultiHeadAttention,
    Recurrent,
    SequenceOutput,
    State,
    TokenOutput,
)

Heads = list[int] | None  # those that are asked for; None = all
Read = Callable[["Computed", Heads], Tensor]
Instead = Callable[..., tuple[Tensor, Tensor]]  # what the module is given -> what it gives, what is seen of it
Named = Iterator[tuple[str, "Probe"]]


@dataclass(frozen=True)
class Computed:
    """One call of a module."""

    module: Any
    given: tuple[Any, ...]
    named: dict[str, Any]  # what it was given by name
    gave: Any


class Probe(NamedTuple):
    """Something that can be seen each time a module has computed."""

    module: nn.Module
    read: Read
    heads: int | None = None  # how many it has; None = it is no matter of heads
    instead: Instead | None = None  # what gives the same as the module without gradients, and what is seen, for less


def probes(model: nn.Module) -> dict[str, Probe]:
    """All that can be seen in a model, by name."""
    found: dict[str, Probe] = {}
    for name, stack in stacks(model).items():
        found.update(_of_stack(name, stack))
    for part in _around_stacks(model):
        if isinstance(part, TokenOutput | SequenceOutput | FlattenOutput):
            found["logits"] = Probe(part, _gave)
    return found


def stacks(model: nn.Module) -> dict[str, nn.Module]:
    """What reads tokens layer by layer: an encoder, a decoder, or both."""
    for part in model.modules():
        if isinstance(part, Model):
            return part.stacks()
    parts = list(_around_stacks(model))  # of a model that is assembled by hand
    found = [("encoder", part) for part in parts if isinstance(part, Encoder | Recurrent)]
    return dict(found + [("decoder", part) for part in parts if isinstance(part, Decoder)])


def _around_stacks(module: nn.Module) -> Iterator[nn.Module]:
    """A module and its parts, the outer before the inner, without what a stack consists of."""
    yield module
    if not isinstance(module, Encoder | Decoder | Recurrent):
        for child in module.children():
            yield from _around_stacks(child)


def _of_stack(at: str, stack: nn.Module) -> Named:
    """Everything that has a name below `at`."""
    match stack:
        case Encoder() | Decoder():
            yield f"{at}.embedded", Probe(stack.blocks[0], _first_given)
            for number, block in enumerate(stack.blocks):
                yield from _of_block(f"{at}.{number}", block)
        case Recurrent():
            yield f"{at}.embedded", Probe(stack, _first_given)
            yield from _of_cells(at, stack, stack, _read)
        case ContextDecoder():
            yield f"{at}.embedded", Probe(stack, _first_given)
            yield from _of_cells(at, stack.network, stack.network, _read)
        case AttentionDecoder():
            yield f"{at}.embedded", Probe(stack, _first_given)
            yield from _of_attention(f"{at}.0.cross", stack, _aligned, 1)
            yield from _of_cells(at, stack, stack.network, _read_aligned)


def _of_block(at: str, block: Any) -> Named:
    yield from _of_heads(f"{at}.self", block.self_attention)
    if isinstance(block, DecoderBlock):
        yield from _of_heads(f"{at}.cross", block.cross_attention)
    yield f"{at}.feed_forward.inner", Probe(block.feed_forward.outer, _first_given)
    yield f"{at}.feed_forward.output", Probe(block.feed_forward, _gave)
    yield f"{at}.hidden", Probe(block, _gave)


def _gave(computed: Computed, _heads: Heads) -> Tensor:
    gave: Tensor = computed.gave
    return gave


def _first_given(computed: Computed, _heads: Heads) -> Tensor:
    first: Tensor = computed.given[0]
    return first


# --- attention ---

MakeCall = Callable[[Computed], AttentionCall]


def _of_heads(at: str, layer: nn.Module) -> Named:
    if not isinstance(layer, MultiHeadAttention):
        return  # somebody's own, of which nothing is known
    kernel = layer.kernel
    instead = _without_kernel(kernel) if isinstance(kernel, Fused) else None
    yield from _of_attention(at, kernel, _through_kernel, layer.heads, instead)
    yield f"{at}.output", Probe(layer, _gave)


def _of_attention(at: str, module: nn.Module, make: MakeCall, heads: int, instead: Instead | None = None) -> Named:
    """All that can be seen of one attention layer, whose calls `make` understands; `instead` gives its weights."""
    for what, read in _readers(make).items():
        yield f"{at}.{what}", Probe(module, read, heads, instead if what == "weights" else None)


@cache
def _readers(make: MakeCall) -> dict[str, Read]:
    def reader(look: Callable[[AttentionCall], Tensor]) -> Read:
        def read(computed: Computed, heads: Heads) -> Tensor:
            call = make(computed)
            return look(call if heads is None else call.of(heads))

        return read

    return {what: reader(look) for what, look in SEEN.items()}


def _through_kernel(computed: Computed) -> AttentionCall:
    """Of `Fused` or `Explicit`."""
    kernel, (q, k, v, mask, offset, bias) = computed.module, computed.given
    return AttentionCall(kernel.score, kernel.normalize, q, k, v, mask, offset, bias, computed.gave)


def _without_kernel(kernel: Fused) -> Instead:
    """The mixture by the weights that are seen, instead of by a kernel that would compute them once more."""

    def mix(*given: Any) -> tuple[Tensor, Tensor]:
        weights, mixed = _through_kernel(Computed(kernel, given, {}, gave=None)).weights_and_mixture()
        return mixed, weights

    return mix


def _aligned(computed: Computed) -> AttentionCall:
    """Of an `AttentionDecoder`: one head, whose query is the state before each step."""
    decoder, (_, memory, last), (states, _) = computed.module, computed.given, computed.gave
    before = torch.cat((last.top.unsqueeze(1), states[:, :-1]), dim=1)  # (B, T, D)
    q, k, mask = before.unsqueeze(1), memory.states.unsqueeze(1), Mask(table=memory.real)
    context = Explicit(decoder.score, decoder.normalize)(q, k, k, mask, 0, None)  # (B, 1, T, D)
    return AttentionCall(decoder.score, decoder.normalize, q, k, k, mask, 0, None, context)


# --- recurrent layers ---

Reading = tuple[Tensor, Tensor | None, State | None]  # x (B, T, D), lengths (B,), the state before


def _of_cells(at: str, module: nn.Module, cells: Recurrent, reading: Callable[[Computed], Reading]) -> Named:
    """The states of each layer; torch gives only those of the last, so the layers below compute once more."""

    def reading_layer(computed: Computed, layer: int) -> Reading:
        """What one layer was given: the states of the one below."""
        x, lengths, before = reading(computed)
        for number in range(layer):
            x, _ = one_layer(cells, number)(x, lengths, before and layer_state(cells, before, number))
        return x, lengths, before and layer_state(cells, before, layer)

    def hidden(layer: int) -> Read:
        return lambda computed, _heads: one_layer(cells, layer)(*reading_layer(computed, layer))[0]

    def memory(layer: int) -> Read:
        return lambda computed, _heads: cell_memory(one_layer(cells, layer), *reading_layer(computed, layer))

    last = cells.network.num_layers - 1
    yield from ((f"{at}.{layer}.cell.hidden", Probe(module, hidden(layer))) for layer in range(last))
    yield f"{at}.{last}.cell.hidden", Probe(module, lambda computed, _heads: computed.gave[0])
    if cells.network.mode == "LSTM":
        yield from ((f"{at}.{layer}.cell.memory", Probe(module, memory(layer))) for layer in range(last + 1))


def _read(computed: Computed) -> Reading:
    """What a `Recurrent` was given."""
    x, lengths = (*computed.given, computed.named.get("lengths"))[:2]
    return x, lengths, computed.named.get("state")


def _read_aligned(computed: Computed) -> Reading:
    """What the network inside an `AttentionDecoder` was given: each token beside the context found for it."""
    tokens, _, before = computed.given
    context = _aligned(computed).mixed.squeeze(1)  # (B, T, D)
    return torch.cat((tokens, context), dim=-1), None, before


def one_layer(cells: Recurrent, layer: int) -> Recurrent:
    """One layer of a recurrent network, by itself, with the same weights."""
    whole = cells.network
    kind = whole.mode.split("_")[0].lower()  # RNN_TANH, GRU, LSTM
    ways = 2 if whole.bidirectional else 1
    inputs = whole.input_size if layer == 0 else ways * whole.hidden_size
    with torch.device("meta"):  # where no random numbers are drawn
        alone = Recurrent(kind, inputs, whole.hidden_size, both_ways=whole.bidirectional)
    mark = f"_l{layer}"
    weights = {name.replace(mark, "_l0"): each for name, each in whole.named_parameters() if mark in name}
    alone.network.load_state_dict(weights, assign=True)
    return alone


def layer_state(cells: Recurrent, state: State, layer: int) -> State:
    """The part of a state (L, B, D) that belongs to one layer."""
    ways = 2 if cells.network.bidirectional else 1
    span = slice(layer * ways, (layer + 1) * ways)
    return State(state.hidden[span], None if state.cell is None else state.cell[span])
