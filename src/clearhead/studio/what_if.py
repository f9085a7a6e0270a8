"""A model with parts switched off, beside the original: its answer, and how probable it finds the original's answer.

The loss is that of the answer which the original model gives: of every token of its text, or of its label.

    T tokens, V vocabulary or labels
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError
from clearhead.look.interventions import (
    attention_layers,
    divergence,
    heads_off,
    layers_off,
    mask_off,
    positions_off,
    scale_off,
)
from clearhead.look.look import Look
from clearhead.look.probes import probes
from clearhead.nn import NoRelativePositions, PositionScheme
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import ServiceDep
from clearhead.serve.registry import ServedModel
from clearhead.studio.inputs import Document, InputBody, compute_json, continues_text, limit_tokens, read_input
from clearhead.tasks.base.predictor import Predictor

router = APIRouter(responses=ERROR_RESPONSES)

CONTINUED = 40  # tokens that a language model adds
BLOCK = re.compile(r"(encoder|decoder)\.\d+")

Name = Annotated[str, Field(max_length=40)]


class WhatIfBody(InputBody):
    """The parts to switch off."""

    scale: bool = False
    mask: bool = False
    positions: bool = False
    layers: list[Name] = Field([], max_length=64)  # encoder.1, …
    heads: list[Name] = Field([], max_length=256)  # encoder.1.self:3, …


@router.post("/what-if")
async def what_if(body: WhatIfBody, request: Request, service: ServiceDep) -> Document:
    """The answer of the original model, and that with parts switched off."""
    served = service.get(body.model)
    item = await read_input(body, served)
    max_tokens = limit_tokens(served, item, CONTINUED)
    return await compute_json(request, served, lambda: compare(served, item, body, max_tokens))


def compare(served: ServedModel, item: Any, body: WhatIfBody, max_tokens: int = CONTINUED) -> Document:
    """Run the model as it is and with parts switched off; a language model adds up to `max_tokens` tokens."""
    model = served.model
    starts_anew = model.generates and not continues_text(served)
    look = model.look(item, beam_width=1) if starts_anew else model.look(item)
    targets = _targets(model, look, starts_anew)  # (T,)
    if not len(targets):
        raise ProbeError("a text of one token has no next token to predict; write more")

    def run() -> tuple[Tensor, str]:
        logits = _read(model, look)  # of a language model nothing follows the last, so its logits are left out
        return logits[-len(targets) :] if starts_anew else logits[: len(targets)], model.answer(item, max_tokens)

    before, output = run()
    with switched_off(model.network, body):
        after, changed = run()
    return {
        "format": "clearhead-what-if-1",
        "model": model.name,
        "task": model.task,
        "text": look.text,
        "parts": parts(model),
        "words": [look.choices[number] for number in targets.tolist()],
        "original": {"output": output, **_measure(before, targets)},
        "changed": {"output": changed, **_measure(after, targets)},
        "divergence": float(divergence(before, after).mean()),
        "flipped": float((before.argmax(-1) != after.argmax(-1)).double().mean()),
    }


@contextmanager
def switched_off(network: nn.Module, body: WhatIfBody) -> Iterator[None]:
    """Switch the parts off inside the block, and on again afterwards."""
    with ExitStack() as stack:
        if body.scale:
            stack.enter_context(scale_off(network))
        if body.mask:
            stack.enter_context(mask_off(network))
        if body.positions:
            stack.enter_context(positions_off(network))
        for layer in body.layers:
            stack.enter_context(layers_off(network, _known(layer, network)))
        for name, head in map(_head, body.heads):
            stack.enter_context(heads_off(network, _known(name, network), [head]))
        yield


def _known(name: str, network: nn.Module) -> str:
    """Return the name of a layer; patterns and unknown names are refused."""
    if not any(each.startswith(f"{name}.") for each in probes(network)):
        raise ProbeError(f"{name!r} is not a layer of this model; it has {', '.join(attention_layers(network))}")
    return name


def _head(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    if not number.isdecimal():
        raise ProbeError(f"{text!r} is not a head: write LAYER:NUMBER, for example encoder.1.self:3")
    return name, int(number)


def parts(model: Predictor) -> Document:
    """Return what can be switched off: the blocks, and the number of heads of each attention layer."""
    blocks = dict.fromkeys(found[0] for name in probes(model.network) if (found := BLOCK.match(name)))
    heads = {name: count for name, (_, count) in attention_layers(model.network).items()}
    return {"whole": whole_switches(model), "layers": list(blocks), "heads": heads}


def whole_switches(model: Predictor) -> list[str]:
    """What can be switched off in the whole model: a mask only where a decoder must not see what it writes next."""
    causal = any(name.startswith("decoder.") and ".self" in name for name in attention_layers(model.network))
    placed = any(
        isinstance(part, PositionScheme) and not isinstance(part, NoRelativePositions)
        for part in model.network.modules()
    )
    return ["scale", *(["mask"] if causal else []), *(["positions"] if placed else [])]


def _targets(model: Predictor, look: Look, starts_anew: bool) -> Tensor:
    """Return the ids (T,) of the original answer: its labels, its tokens with the stop, or a language model's text."""
    if not model.generates:
        return _read(model, look).argmax(-1)
    text = look.inputs[-1][0, 1:]  # without the start token, or the first token of a text
    return torch.cat((text, torch.tensor([model.tokenizer.stop]))) if starts_anew else text


@torch.no_grad()
def _read(model: Predictor, look: Look) -> Tensor:
    """Return the logits (T, V), or (1, V) for one label."""
    logits: Tensor = model.network(*look.inputs)[0]
    return logits if logits.dim() == 2 else logits[None]


def _measure(logits: Tensor, targets: Tensor) -> Document:
    loss = F.cross_entropy(logits, targets, reduction="none")  # (T,)
    return {"loss": float(loss.mean()), "probabilities": loss.neg().exp().tolist()}
