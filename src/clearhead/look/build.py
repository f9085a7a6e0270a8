"""From a network and one prepared input to a `Look`: everything it computes, with a string for every token.

B batch (of one), H heads, G key-value heads, T queries or tokens, S keys, D size of a vector
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearhead.look.inputs import PreparedInput
from clearhead.look.look import Look
from clearhead.look.probes import capture, probes
from clearhead.look.record import TENSORS, AttentionRecord
from clearhead.nn.attention import share_heads

Answer = Callable[[Tensor], str]  # logits (T, V) or (V,) -> the answer as people read it


def compute_look(
    network: nn.Module, prepared: PreparedInput, answer: Answer, *, model: str = "", task: str = ""
) -> Look:
    """Run a network on one input and keep everything it computes; `model` and `task` are names."""
    seen = computed(network, prepared.inputs, *look_probes(network))
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
        attention={kind: attended(seen, kind, *prepared.edges[kind]) for kind in kinds(seen)},
        tokens={stack: strings for stack, strings in tokens.items() if strings},
        hidden={stack: hidden(seen, stack) for stack in tokens if f"{stack}.embedded" in seen},
        logits=seen["logits"],
        output=output,
        choices=prepared.choices,
        image=prepared.image,
        grid=prepared.grid,
        class_token=prepared.class_token,
        network=network,
        inputs=prepared.inputs,
    )


def computed(network: nn.Module, inputs: Sequence[Tensor], *patterns: str) -> dict[str, Tensor]:
    """The probes that the patterns name, for a forward pass in evaluation mode on the network's device."""
    device = next(network.parameters()).device
    with evaluating(network), torch.no_grad(), capture(network, *patterns, stop=True) as seen:
        network(*(tensor.to(device) for tensor in inputs))
    return seen


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block, the former mode after it."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


def look_probes(network: nn.Module) -> list[str]:
    """The probes that a `Look` is made of."""
    ends = ("embedded", "hidden", "logits", "visible", *TENSORS)
    return [name for name in probes(network) if name.split(".")[-1] in ends]


def kinds(names: Sequence[str] | dict[str, Tensor]) -> list[str]:
    """The kinds of attention among some probes: encoder.0.self.weights -> encoder.self."""
    found = (name.split(".") for name in names if name.endswith(".weights"))
    return list(dict.fromkeys(f"{stack}.{part}" for stack, _, part, _ in found))


def attended(seen: dict[str, Tensor], kind: str, rows: Sequence[str], columns: Sequence[str]) -> AttentionRecord:
    """One kind of attention in all layers, from the probes of one input."""
    stack, part = kind.split(".")
    layers = {name: layers_of(seen, stack, f"{part}.{name}") for name in ("visible", *TENSORS)}
    heads = len(layers["weights"][0])
    visible = layers["visible"][0]  # (T, S), the same in every layer
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


def hidden(seen: dict[str, Tensor], stack: str) -> list[Tensor]:
    """The embedding and the output of each layer, each (T, D)."""
    return [seen[f"{stack}.embedded"], *(layers_of(seen, stack, "hidden") or layers_of(seen, stack, "cell.hidden"))]


def layers_of(seen: dict[str, Tensor], stack: str, what: str) -> list[Tensor]:
    """One probe of every layer, from the first on."""
    found: list[Tensor] = []
    while (name := f"{stack}.{len(found)}.{what}") in seen:
        found.append(seen[name])
    return found
