"""From a network and one prepared input to a `Look`: everything it computes, with a string for every token.

    compute_look             of one forward pass
    look_while_generating    of generation: what each token looked at when it was generated, not when it was read again

A generation step computes only what is new, over cached keys and values; beams change rows, and finished rows leave the
batch. So every row carries a trace of what it has computed, and the pieces of its trace joined are what one forward
pass over the finished text gives. Tests hold the two equal.

    B rows, H heads, G key-value heads, T queries or tokens, S keys, D size of a vector
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.decode import Prompts, Settings, generate
from clearhead.errors import ProbeError
from clearhead.look.inputs import PreparedInput
from clearhead.look.look import Look
from clearhead.look.probes import capture, probes, stacks
from clearhead.look.record import TENSORS, AttentionRecord
from clearhead.nn import Decoder, Encoder, Explicit, Mask
from clearhead.nn.attention import share_heads

Answer = Callable[[Tensor], str]  # logits (T, V) or (V,) -> the answer as people read it
Piece = dict[str, Tensor]  # what one row computed in one step, by probe; no batch axis
Strings = Callable[[Iterable[int]], list[str]]  # ids -> the string of each
Decode = Callable[[Iterable[int]], str]


def compute_look(
    network: nn.Module, prepared: PreparedInput, answer: Answer, *, model: str = "", task: str = ""
) -> Look:
    """Run a network on one input and keep everything it computes; `model` and `task` are names."""
    seen = run_probes(network, prepared.inputs, *look_probes(network))
    seen = {name: tensor[0].cpu() for name, tensor in seen.items()}
    return build_look(network, prepared, seen, answer(seen["logits"]), model=model, task=task)


def build_look(
    network: nn.Module,
    prepared: PreparedInput,
    seen: dict[str, Tensor],
    output: str,
    *,
    model: str = "",
    task: str = "",
) -> Look:
    """The `Look` of what was computed, by probe and without the batch axis; `output` is the model's answer."""
    tokens = {"encoder": list(prepared.encoder), "decoder": list(prepared.decoder)}
    return Look(
        model=model,
        task=task,
        text=prepared.text,
        attention={kind: attention_record(seen, kind, *prepared.edges[kind]) for kind in attention_kinds(seen)},
        tokens={stack: strings for stack, strings in tokens.items() if strings},
        hidden={stack: hidden_states(seen, stack) for stack in tokens if f"{stack}.embedded" in seen},
        logits=seen["logits"],
        output=output,
        choices=prepared.choices,
        image=prepared.image,
        grid=prepared.grid,
        class_token=prepared.class_token,
        network=network,
        inputs=prepared.inputs,
    )


def run_probes(network: nn.Module, inputs: Sequence[Tensor], *patterns: str) -> dict[str, Tensor]:
    """The probes that the patterns name, for a forward pass in evaluation mode on the network's device."""
    device = next(network.parameters()).device
    with evaluation_mode(network), torch.no_grad(), capture(network, *patterns, stop=True) as seen:
        network(*(tensor.to(device) for tensor in inputs))
    return seen


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block, every module's former mode after it."""
    training = [module for module in network.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def look_probes(network: nn.Module) -> list[str]:
    """The probes that a `Look` is made of."""
    ends = ("embedded", "hidden", "logits", "visible", *TENSORS)
    return [name for name in probes(network) if name.split(".")[-1] in ends]


def attention_kinds(names: Sequence[str] | dict[str, Tensor]) -> list[str]:
    """The kinds of attention among some probes: encoder.0.self.weights -> encoder.self."""
    found = (name.split(".") for name in names if name.endswith(".weights"))
    return list(dict.fromkeys(f"{stack}.{part}" for stack, _, part, _ in found))


def attention_record(
    seen: dict[str, Tensor], kind: str, rows: Sequence[str], columns: Sequence[str]
) -> AttentionRecord:
    """One kind of attention in all layers, from the probes of one input."""
    stack, part = kind.split(".")
    layers = {name: layers_of(seen, stack, f"{part}.{name}") for name in ("visible", *TENSORS)}
    heads = len(layers["weights"][0])
    visible = reduce(torch.logical_or, layers["visible"])  # (T, S): a layer may see less far than the others
    return AttentionRecord(
        rows=list(rows),
        columns=list(columns),
        causal=kind == "decoder.self" and not visible.triu(1).any(),
        visible=visible,
        weights=layers["weights"],
        scores=layers["scores"],
        query=layers["query"],
        key=[share_heads(key[None], heads)[0] for key in layers["key"]],
        value=[share_heads(value[None], heads)[0] for value in layers["value"]],
    )


def hidden_states(seen: dict[str, Tensor], stack: str) -> list[Tensor]:
    """The embedding and the output of each layer, each (T, D)."""
    layers = layers_of(seen, stack, "hidden") or layers_of(seen, stack, "cell.hidden")
    return [seen[f"{stack}.embedded"], *layers]


def layers_of(seen: dict[str, Tensor], stack: str, what: str) -> list[Tensor]:
    """One probe of every layer, from the first on."""
    found: list[Tensor] = []
    while (name := f"{stack}.{len(found)}.{what}") in seen:
        found.append(seen[name])
    return found


# --- while a text is generated ---


def look_while_generating(
    network: Any,
    prepared: PreparedInput,
    settings: Settings,
    strings: Strings,
    decode: Decode,
    *,
    model: str = "",
    task: str = "",
) -> Look:
    """What the network computed for the best text while it generated it; the answer is that text."""
    device = next(network.parameters()).device
    with evaluation_mode(network), recording(network) as recorder:
        state = recorder.start(*(source.to(device) for source in prepared.sources))
        prompts = Prompts([prepared.prompt], prepared.stop, device=device)
        [[best, *_]] = generate(recorder, state, prompts, replace(settings, return_logprobs=True))
    if not best.logprobs:
        raise ProbeError(f"max_tokens={settings.max_tokens} leaves no room for a token, so nothing was generated")
    ids = [*best.ids, prepared.stop] if best.finished and prepared.stop is not None else best.ids
    tokens = strings(ids)
    whole = prepared.continued(ids[:-1], tokens[:-1], tokens[-1])
    seen = {name: tensor.cpu() for name, tensor in recorder.seen(0, whole.prompt).items()}
    return build_look(network, whole, seen, decode(best.ids), model=model, task=task)


# --- every row carries what it has computed ---


@dataclass(frozen=True)
class RowTrace:
    """One row: where it started, the tokens it has read, and what it computed in each step."""

    row: int  # its index when generation began
    ids: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def extended(self, ids: Sequence[int], piece: Piece) -> RowTrace:
        return RowTrace(self.row, (*self.ids, *ids), (*self.pieces, piece))


@dataclass(frozen=True)
class RecordedState:
    """The network's state between two steps, and the trace of each row."""

    state: Any
    traces: list[RowTrace]  # B


@contextmanager
def recording(network: Any) -> Iterator[GenerationRecorder]:
    """The network as a stepper that keeps what it computes."""
    names = [name for name in look_probes(network) if not fnmatchcase(name, "decoder.*.self.scores")]
    with capture(network, *names) as seen:
        yield GenerationRecorder(network, seen)


class GenerationRecorder:
    """A stepper around a network that keeps, for every row, what the network computes."""

    def __init__(self, network: Any, current: Piece):
        self.network = network
        self.current = current  # what is being computed, (B, …)
        self.encoded: list[Piece] = []  # what an encoder computed for each row
        self.traces: dict[tuple[int, tuple[int, ...]], RowTrace] = {}  # by first row and tokens read

    @torch.no_grad()
    def start(self, *sources: Tensor) -> RecordedState:
        """Read the sources; a network that reads none starts with one row."""
        state = self.network.start(*sources)
        rows = self._rows(len(sources[0]) if sources else 1)
        self.encoded = [_of("encoder", row) for row in rows]
        first = [_of("decoder", row) for row in rows]  # patches, where they are the first tokens of the sequence
        return RecordedState(state, [RowTrace(row, (), (piece,) if piece else ()) for row, piece in enumerate(first)])

    def step(self, ids: Tensor, state: RecordedState) -> tuple[Tensor, RecordedState]:
        logits, after = self.network.step(ids, state.state)
        steps = zip(state.traces, ids.tolist(), self._rows(len(ids)), strict=True)
        traces = [trace.extended(read, piece) for trace, read, piece in steps]
        self.traces |= {(trace.row, trace.ids): trace for trace in traces}
        return logits, RecordedState(after, traces)

    def reorder(self, state: RecordedState, rows: Tensor) -> RecordedState:
        return RecordedState(self.network.reorder(state.state, rows), [state.traces[row] for row in rows.tolist()])

    def seen(self, row: int, ids: Sequence[int]) -> Piece:
        """Everything computed for the text that started in this row and has read these tokens: (H, T, S) and so on."""
        pieces = self.traces[row, tuple(ids)].pieces
        found = {name: _joined(name, [piece for piece in pieces if name in piece]) for name in pieces[-1]}
        return self.encoded[row] | found | self._scores(found)

    def _rows(self, count: int) -> list[Piece]:
        rows = [{name: tensor[row] for name, tensor in self.current.items()} for row in range(count)]
        self.current.clear()
        return rows

    def _scores(self, found: Piece) -> Piece:
        """While it is generated, no token is scored against later ones: the equation gives these scores, (H, T, T)."""
        stack, scores = stacks(self.network)["decoder"], {}
        blocks: Any = stack.blocks if isinstance(stack, Encoder | Decoder) else ()
        for number, block in enumerate(blocks):
            name, layer = f"decoder.{number}.self", block.self_attention
            q, k = found[f"{name}.query"], found[f"{name}.key"]  # (H, T, D), (G, T, D)
            equation = Explicit(layer.kernel.explicit().score, normalize=lambda scores, _mask: scores)
            with torch.no_grad():
                scores[f"{name}.scores"] = equation.weights(q[None], k[None], Mask(), bias=layer.relative.bias)[0]
        return scores


def _of(stack: str, piece: Piece) -> Piece:
    return {name: tensor for name, tensor in piece.items() if name.startswith(f"{stack}.")}


# --- pieces joined ---


def _joined(name: str, pieces: Sequence[Piece]) -> Tensor:
    """One probe of a whole text, from the pieces of its steps."""
    parts = [piece[name] for piece in pieces]
    match name.split("."):
        case [_, _, "self", "weights" | "visible"]:
            return placed(parts)
        case [stack, layer, "self", "key" | "value"]:
            new = [piece[f"{stack}.{layer}.self.query"].size(-2) for piece in pieces]
            return torch.cat([part[..., -count:, :] for part, count in zip(parts, new, strict=True)], dim=-2)
        case [_, _, "cross", "key" | "value"]:
            return parts[0].clone()
        case _:
            return torch.cat(parts, dim=-2)


def placed(parts: Sequence[Tensor]) -> Tensor:
    """(…, new queries, keys) each -> (…, T, T): the keys of each part end where its queries do; the rest is 0."""
    length, end = sum(part.size(-2) for part in parts), 0
    if parts[0].shape[-2:] == (length, length):
        return parts[0]
    whole = parts[0].new_zeros(*parts[0].shape[:-2], length, length)
    for part in parts:
        queries, keys = part.shape[-2:]
        end += queries
        whole[..., end - queries : end, end - keys : end] = part
    return whole
