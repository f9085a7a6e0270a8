"""Named probes: everything that can be seen in a model, and how to capture it.

    with capture(model, "decoder.*.cross.weights", "encoder.2.hidden") as seen:
        model(source, target)
    seen["decoder.0.cross.weights"]        # (B, H, T, S)

Names are STACK.LAYER.PART.TENSOR; `*` and `?` match any letters:

    encoder.2.self.weights           (B, H, T, S); so are scores; visible is (B, T, S)
    decoder.0.cross.query            (B, H, T, D); key and value (B, G, S, D), mixed (B, H, T, V), output (B, T, D)
    encoder.2.feed_forward.inner     (B, T, inner): the input of the second matrix; output (B, T, D)
    encoder.2.hidden                 (B, T, D): the output of block 2
    encoder.embedded                 (B, T, D): the input of block 0
    decoder.0.cell.hidden            (B, T, D): the states of a recurrent layer; memory the cell states of an LSTM
    logits                           (B, T, V), or (B, V); of a model that embeds texts, their vectors (B, D)

A stack is called decoder if it generates: a language model is a decoder without an encoder. A recurrent decoder with
attention has it in layer 0.

Only the requested tensors are computed, and only for the requested `heads`; with `stop`, the forward pass ends as soon
as all of them were seen, so that the first layer of twelve costs a twelfth. The model is not changed, and the hooks are
always removed. A part that runs several times, as in generation, leaves its last result.

    B batch, H heads, G key-value heads, T queries or tokens, S keys, D width
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from clearhead.errors import ProbeError
from clearhead.look.attention import CALL_TENSORS, AttentionCall
from clearhead.look.record import index_range
from clearhead.models.build import Model
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
    PooledVector,
    Recurrent,
    SequenceOutput,
    State,
    TokenOutput,
)

Heads = list[int] | None  # None = all
Read = Callable[["ModuleCall", Heads], Tensor]
Replacement = Callable[..., tuple[Tensor, Tensor]]  # the inputs of a module -> its output, the probed tensor
NamedProbes = Iterator[tuple[str, "Probe"]]
Keep = Callable[[str, Tensor], None]  # the name of a probe, and its tensor


@dataclass(frozen=True)
class ModuleCall:
    """One forward pass of a module."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any


class Probe(NamedTuple):
    """A tensor that can be read after each forward pass of a module."""

    module: nn.Module
    read: Read
    heads: int | None = None  # number of heads; None = the tensor has no heads
    replacement: Replacement | None = None  # computes output and tensor together, cheaper, without gradients


def probes(model: nn.Module) -> dict[str, Probe]:
    """Everything that can be seen in a model, by name."""
    found: dict[str, Probe] = {}
    for name, stack in stacks(model).items():
        found.update(_stack_probes(name, stack))
    for part in _around_stacks(model):
        if isinstance(part, TokenOutput | SequenceOutput | FlattenOutput | PooledVector):
            found["logits"] = Probe(part, _output)
    return found


# --- capture ---


class _AllSeen(BaseException):
    """Ends a forward pass early; a BaseException, so that `except Exception` in a module cannot swallow it."""


@contextmanager
def capture(
    model: nn.Module, *patterns: str, heads: int | Sequence[int] | None = None, stop: bool = False
) -> Iterator[dict[str, Tensor]]:
    """Record the probes that match the patterns, batch first, each time the model is called.

    With `stop` the `with` block ends as soon as the model has computed all of them: code after the call does not run.
    """
    matching, chosen = requested_probes(model, patterns, heads)
    seen: dict[str, Tensor] = {}
    ended = _AllSeen()

    def keep(name: str, tensor: Tensor) -> None:
        seen[name] = tensor
        if stop and len(seen) == len(matching):
            raise ended

    with ExitStack() as cleanup:
        for name, probe in matching.items():
            record = _recorder(keep, name, probe, chosen)
            # A forward that is replaced already, perhaps by another capture, is hooked instead.
            if probe.replacement is None or chosen is not None or "forward" in vars(probe.module):
                cleanup.callback(probe.module.register_forward_hook(record, with_kwargs=True).remove)
            else:
                vars(probe.module)["forward"] = _replaced(probe.replacement, probe.module, partial(keep, name), record)
                cleanup.callback(vars(probe.module).pop, "forward")
        try:
            yield seen
        except _AllSeen as reason:
            if reason is not ended:  # it belongs to an outer capture
                raise


def _recorder(keep: Keep, name: str, probe: Probe, heads: Heads) -> Callable[..., None]:
    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        with torch.no_grad():
            keep(name, probe.read(ModuleCall(module, args, kwargs, output), heads).detach())

    return record


def _replaced(
    replacement: Replacement, module: nn.Module, keep: Callable[[Tensor], None], record: Callable[..., None]
) -> Callable[..., Tensor]:
    """A `forward` that computes output and tensor together; in training the usual one, with the tensor recomputed."""
    forward = module.forward

    def compute(*args: Any) -> Tensor:
        if torch.is_grad_enabled() or module.training:
            output: Tensor = forward(*args)
            record(module, args, {}, output)
        else:
            output, tensor = replacement(*args)
            keep(tensor)
        return output

    return compute


@contextmanager
def removing(hooks: Iterable[RemovableHandle]) -> Iterator[None]:
    """Remove the hooks at the end of the block."""
    registered = list(hooks)
    try:
        yield
    finally:
        for hook in registered:
            hook.remove()


def requested_probes(
    model: nn.Module, patterns: Sequence[str], heads: int | Sequence[int] | None
) -> tuple[dict[str, Probe], Heads]:
    """The probes that match any of the patterns, and the heads; those that a layer does not have are refused."""
    chosen: Heads = None if heads is None else [heads] if isinstance(heads, int) else list(heads)
    matching = matching_probes(probes(model), patterns)
    for name, probe in matching.items():
        for head in chosen or []:
            if probe.heads is not None and not 0 <= head < probe.heads:
                raise ProbeError(f"{name.rsplit('.', 1)[0]} has no head {head}; choose from {index_range(probe.heads)}")
    return matching, chosen


def matching_probes(known: dict[str, Probe], patterns: Sequence[str]) -> dict[str, Probe]:
    """The probes that match any of the patterns; a pattern that matches none is refused."""
    if not patterns:
        raise ProbeError("there is nothing to capture: name some probes, such as encoder.*.self.weights")
    named: set[str] = set()
    for pattern in patterns:
        found = [pattern] if pattern in known else list(filter(_matcher(pattern), known))
        if not found:
            raise ProbeError(f"this model has no {pattern}: {_suggestion(known, pattern)}")
        named.update(found)
    return {name: probe for name, probe in known.items() if name in named}


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(translate(pattern)).match


def _suggestion(known: dict[str, Probe], pattern: str) -> str:
    """How far the names match the pattern, and what could follow instead."""
    if pattern.split(".")[-1] in CALL_TENSORS and not any(probe.heads for probe in known.values()):
        return f"it does not attend; it has {_listed(known) or 'nothing to see'}"
    left = [name.split(".") for name in known]
    for place, word in enumerate(pattern.split(".")):
        matching = [words for words in left if len(words) > place and fnmatchcase(words[place], word)]
        if not matching:
            options = _listed({words[place] for words in left if len(words) > place})
            before = ".".join(pattern.split(".")[:place])
            return f"after {before} comes {options}" if before else f"a name begins with {options}"
        left = matching
    return f"it goes on with {_listed({words[place + 1] for words in left if len(words) > place + 1})}"


def _listed(words: Iterable[str]) -> str:
    """Words and numbers: `0 to 5, embedded`."""
    words = list(words)
    numbers = [word for word in words if word.isdigit()]
    named = sorted(word for word in words if not word.isdigit())
    return ", ".join([*([index_range(len(numbers))] if numbers else []), *named])


# --- stacks and blocks ---


def stacks(model: nn.Module) -> dict[str, nn.Module]:
    """The stacks of layers of a model: an encoder, a decoder, or both."""
    for part in model.modules():
        if isinstance(part, Model):
            return part.stacks()
    parts = list(_around_stacks(model))  # of a model that is assembled by hand
    found = [("encoder", part) for part in parts if isinstance(part, Encoder | Recurrent)]
    return dict(found + [("decoder", part) for part in parts if isinstance(part, Decoder)])


def _around_stacks(module: nn.Module) -> Iterator[nn.Module]:
    """A module and its submodules, outer before inner, without the inside of stacks."""
    yield module
    if not isinstance(module, Encoder | Decoder | Recurrent):
        for child in module.children():
            yield from _around_stacks(child)


def _stack_probes(at: str, stack: nn.Module) -> NamedProbes:
    """The probes whose names begin with `at`."""
    match stack:
        case Encoder() | Decoder():
            yield f"{at}.embedded", Probe(stack.blocks[0], _first_input)
            for number, block in enumerate(stack.blocks):
                yield from _block_probes(f"{at}.{number}", block)
        case Recurrent():
            yield f"{at}.embedded", Probe(stack, _first_input)
            yield from _cell_probes(at, stack, stack, _recurrent_inputs)
        case ContextDecoder():
            yield f"{at}.embedded", Probe(stack, _first_input)
            yield from _cell_probes(at, stack.network, stack.network, _recurrent_inputs)
        case AttentionDecoder():
            yield f"{at}.embedded", Probe(stack, _first_input)
            yield from _attention_probes(f"{at}.0.cross", stack, _aligned, 1)
            yield from _cell_probes(at, stack, stack.network, _aligned_inputs)


def _block_probes(at: str, block: Any) -> NamedProbes:
    yield from _head_probes(f"{at}.self", block.self_attention)
    if isinstance(block, DecoderBlock):
        yield from _head_probes(f"{at}.cross", block.cross_attention)
    yield f"{at}.feed_forward.inner", Probe(block.feed_forward.outer, _first_input)
    yield f"{at}.feed_forward.output", Probe(block.feed_forward, _output)
    yield f"{at}.hidden", Probe(block, _output)


def _output(call: ModuleCall, _heads: Heads) -> Tensor:
    output: Tensor = call.output
    return output


def _first_input(call: ModuleCall, _heads: Heads) -> Tensor:
    first: Tensor = call.args[0]
    return first


# --- attention ---

MakeCall = Callable[[ModuleCall], AttentionCall]


def _head_probes(at: str, layer: nn.Module) -> NamedProbes:
    if not isinstance(layer, MultiHeadAttention):
        return  # a custom layer, of which nothing is known
    kernel = layer.kernel
    replacement = partial(_explicit, kernel) if isinstance(kernel, Fused) else None
    yield from _attention_probes(at, kernel, _kernel_call, layer.heads, replacement)
    yield f"{at}.output", Probe(layer, _output)


def _attention_probes(
    at: str, module: nn.Module, make: MakeCall, heads: int, replacement: Replacement | None = None
) -> NamedProbes:
    """The probes of one attention layer; `make` turns its calls into attention calls."""
    for name, read in _readers(make).items():
        yield f"{at}.{name}", Probe(module, read, heads, replacement if name == "weights" else None)


@cache
def _readers(make: MakeCall) -> dict[str, Read]:
    def reader(compute: Callable[[AttentionCall], Tensor]) -> Read:
        def read(call: ModuleCall, heads: Heads) -> Tensor:
            attention = make(call)
            return compute(attention if heads is None else attention.of(heads))

        return read

    return {name: reader(compute) for name, compute in CALL_TENSORS.items()}


def _kernel_call(call: ModuleCall) -> AttentionCall:
    """Of `Fused` or `Explicit`."""
    kernel, (q, k, v, mask, offset, bias) = call.module, call.args
    return AttentionCall(kernel.score, kernel.normalize, q, k, v, mask, offset, bias, call.output)


def _explicit(kernel: Fused, *args: Any) -> tuple[Tensor, Tensor]:
    """Output by the captured weights, instead of by a kernel that would compute them once more."""
    weights, mixed = _kernel_call(ModuleCall(kernel, args, {}, output=None)).weights_and_mixture()
    return mixed, weights


def _aligned(call: ModuleCall) -> AttentionCall:
    """Of an `AttentionDecoder`: one head, whose query is the state before each step."""
    decoder, (_, memory, last), (states, _) = call.module, call.args, call.output
    before = torch.cat((last.top.unsqueeze(1), states[:, :-1]), dim=1)  # (B, T, D)
    q, k, mask = before.unsqueeze(1), memory.states.unsqueeze(1), Mask(table=memory.real)
    context = Explicit(decoder.score, decoder.normalize)(q, k, k, mask, 0, None)  # (B, 1, T, D)
    return AttentionCall(decoder.score, decoder.normalize, q, k, k, mask, 0, None, context)


# --- recurrent layers ---

CellInputs = tuple[Tensor, Tensor | None, State | None]  # x (B, T, D), lengths (B,), the state before


def _cell_probes(
    at: str, module: nn.Module, cells: Recurrent, inputs_of: Callable[[ModuleCall], CellInputs]
) -> NamedProbes:
    """The states of each layer; torch returns only those of the last, so the layers below are computed once more."""

    def layer_inputs(call: ModuleCall, layer: int) -> CellInputs:
        """The inputs of one layer: the states of the one below."""
        x, lengths, before = inputs_of(call)
        for number in range(layer):
            x, _ = one_layer(cells, number)(x, lengths, before and layer_state(cells, before, number))
        return x, lengths, before and layer_state(cells, before, layer)

    def hidden(layer: int) -> Read:
        return lambda call, _heads: one_layer(cells, layer)(*layer_inputs(call, layer))[0]

    def memory(layer: int) -> Read:
        return lambda call, _heads: cell_states(one_layer(cells, layer), *layer_inputs(call, layer))

    last = cells.network.num_layers - 1
    yield from ((f"{at}.{layer}.cell.hidden", Probe(module, hidden(layer))) for layer in range(last))
    yield f"{at}.{last}.cell.hidden", Probe(module, lambda call, _heads: call.output[0])
    if cells.network.mode == "LSTM":
        yield from ((f"{at}.{layer}.cell.memory", Probe(module, memory(layer))) for layer in range(last + 1))


def _recurrent_inputs(call: ModuleCall) -> CellInputs:
    """Of a `Recurrent`."""
    x, lengths = (*call.args, call.kwargs.get("lengths"))[:2]
    return x, lengths, call.kwargs.get("state")


def _aligned_inputs(call: ModuleCall) -> CellInputs:
    """Of the network inside an `AttentionDecoder`: each token beside the context found for it."""
    tokens, _, before = call.args
    context = _aligned(call).mixed.squeeze(1)  # (B, T, D)
    return torch.cat((tokens, context), dim=-1), None, before


def one_layer(cells: Recurrent, layer: int) -> Recurrent:
    """One layer of a recurrent network as a module that shares its weights."""
    whole = cells.network
    kind = whole.mode.split("_")[0].lower()  # RNN_TANH, GRU, LSTM
    directions = 2 if whole.bidirectional else 1
    inputs = whole.input_size if layer == 0 else directions * whole.hidden_size
    with torch.device("meta"):  # draws no random numbers
        alone = Recurrent(kind, inputs, whole.hidden_size, both_ways=whole.bidirectional)
    suffix = f"_l{layer}"
    weights = {name.replace(suffix, "_l0"): each for name, each in whole.named_parameters() if suffix in name}
    alone.network.load_state_dict(weights, assign=True)
    return alone


def layer_state(cells: Recurrent, state: State, layer: int) -> State:
    """The part of a state (L, B, D) that belongs to one layer."""
    directions = 2 if cells.network.bidirectional else 1
    rows = slice(layer * directions, (layer + 1) * directions)
    return State(state.hidden[rows], None if state.cell is None else state.cell[rows])


# --- the cell state of an LSTM ---
#
# torch computes c_t after every token, but returns only the last:
#
#     i, f, g, o = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh
#     c_t = σ(f) c_{t-1} + σ(i) tanh(g)                 what is kept, and what is new
#     h_t = σ(o) tanh(c_t)                              what is exposed
#
# The hidden states are known, so the gates of all tokens are one matrix product; only the sum goes token by token.


def cell_states(layer: Recurrent, x: Tensor, lengths: Tensor | None = None, before: State | None = None) -> Tensor:
    """One layer, x (B, T, D), lengths (B,) -> c (B, T, H), zero where padded; (B, T, 2 H) if bidirectional."""
    if layer.network.mode != "LSTM":
        raise ProbeError(f"a {layer.network.mode} has no cell state beside its hidden state; only an LSTM has")
    states, _ = layer(x, lengths, before)
    real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if lengths is not None:
        real = torch.arange(x.size(1), device=x.device) < lengths.to(x.device).unsqueeze(-1)  # (B, T)
    size = layer.network.hidden_size
    forward = _cell_states(layer, "", x, states[..., :size], real, _start(before, 0))
    if not layer.network.bidirectional:
        return forward
    x, states, real = x.flip(1), states[..., size:].flip(1), real.flip(1)
    return torch.cat((forward, _cell_states(layer, "_reverse", x, states, real, _start(before, 1)).flip(1)), dim=-1)


def _start(before: State | None, direction: int) -> tuple[Tensor, Tensor] | None:
    """h_0 and c_0 (B, H) of one direction."""
    return None if before is None or before.cell is None else (before.hidden[direction], before.cell[direction])


def _cell_states(
    layer: Recurrent, suffix: str, x: Tensor, states: Tensor, real: Tensor, start: tuple[Tensor, Tensor] | None
) -> Tensor:
    """c (B, T, H) of one direction in reading order; padding before the first token leaves it zero."""
    empty = torch.zeros_like(states[:, 0])  # (B, H)
    hidden, cell = start or (empty, empty)
    earlier = torch.cat((hidden.unsqueeze(1), states[:, :-1]), dim=1)  # h_{t-1}, (B, T, H)
    names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    w_ih, b_ih, w_hh, b_hh = (getattr(layer.network, f"{name}_l0{suffix}") for name in names)
    new, keep, content, _ = (F.linear(x, w_ih, b_ih) + F.linear(earlier, w_hh, b_hh)).chunk(4, dim=-1)  # each (B, T, H)
    kept, added = keep.sigmoid(), new.sigmoid() * content.tanh()
    cells = []
    for token in range(x.size(1)):
        cell = (kept[:, token] * cell + added[:, token]) * real[:, token, None]
        cells.append(cell)
    return torch.stack(cells, dim=1)
