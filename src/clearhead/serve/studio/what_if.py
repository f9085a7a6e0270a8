"""A model with something switched off, beside itself: what it answers, and how likely it finds its own answer.

The loss is that of the answer which the whole model gives: of every token of its text, or of its label.

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
from torch import Tensor
from torch.nn import functional as F

from clearhead.errors import ProbeError
from clearhead.look.effects import divergence
from clearhead.look.interventions import attention_layers, heads_off, layers_off, mask_off, positions_off, scale_off
from clearhead.look.look import Look
from clearhead.look.probes import probes
from clearhead.serve.asking import Serving
from clearhead.serve.failures import FAILURES
from clearhead.serve.studio.asking import Reading, computed, read, room
from clearhead.serve.studio.play import writes
from clearhead.tasks.base.predictor import Predictor as Model

router = APIRouter(responses=FAILURES)

CONTINUED = 40  # tokens that a language model adds
BLOCK = re.compile(r"(encoder|decoder)\.\d+")

Document = dict[str, Any]
Name = Annotated[str, Field(max_length=40)]


class Off(Reading):
    """What is switched off."""

    scale: bool = False
    mask: bool = False
    positions: bool = False
    layers: list[Name] = Field([], max_length=64)  # encoder.1, …
    heads: list[Name] = Field([], max_length=256)  # encoder.1.self:3, …


@router.post("/what-if")
async def what_if(asked: Off, request: Request, service: Serving) -> Document:
    """The answer with something switched off, and without."""
    served = service.get(asked.model)
    item = await read(asked, served)
    longest = room(served, item, CONTINUED)
    found: Document = await computed(request, served, lambda: compared(served.model, item, asked, longest))
    return found


def compared(model: Model, item: Any, asked: Off, longest: int = CONTINUED) -> Document:
    """The model as it is, and with something switched off; a language model goes on by so many tokens."""
    look = model.look(item, beam_width=1) if writes(model) and model.config.task != "lm" else model.look(item)
    answers = _answers(model, look)  # (T,)
    if not len(answers):
        raise ProbeError("a single token has nothing that follows from it; write more")
    before, output = _logits(model, look, len(answers)), _answer(model, item, longest)
    with switched_off(model.network, asked):
        after, changed = _logits(model, look, len(answers)), _answer(model, item, longest)
    return {
        "format": "clearhead-what-if-1",
        "model": model.name,
        "task": model.config.task,
        "text": look.text,
        "parts": parts(model),
        "words": [look.choices[number] for number in answers.tolist()],
        "original": {"output": output, **_measured(before, answers)},
        "changed": {"output": changed, **_measured(after, answers)},
        "divergence": float(divergence(before, after).mean()),
        "flipped": float((before.argmax(-1) != after.argmax(-1)).double().mean()),
    }


@contextmanager
def switched_off(network: Any, asked: Off) -> Iterator[None]:
    """All that is asked for, and afterwards nothing."""
    with ExitStack() as stack:
        if asked.scale:
            stack.enter_context(scale_off(network))
        if asked.mask:
            stack.enter_context(mask_off(network))
        if asked.positions:
            stack.enter_context(positions_off(network))
        for layer in asked.layers:
            stack.enter_context(layers_off(network, _known(layer, network)))
        for name, head in map(_head, asked.heads):
            stack.enter_context(heads_off(network, _known(name, network), [head]))
        yield


def _known(name: str, network: Any) -> str:
    """A part by its plain name: no pattern."""
    if not any(each.startswith(f"{name}.") for each in probes(network)):
        raise ProbeError(f"{name!r} is no layer of this model; it has {', '.join(attention_layers(network))}")
    return name


def _head(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    if not number.isdecimal():
        raise ProbeError(f"{text!r} is no head: write LAYER:NUMBER, encoder.1.self:3 for one")
    return name, int(number)


def parts(model: Model) -> Document:
    """What can be switched off: blocks, and how many heads each attention layer has."""
    blocks = dict.fromkeys(found[0] for name in probes(model.network) if (found := BLOCK.match(name)))
    return {
        "layers": list(blocks),
        "heads": {name: heads for name, (_, heads) in attention_layers(model.network).items()},
    }


def _answers(model: Model, look: Look) -> Tensor:
    """The numbers (T,) of the answer that the whole model gives; what a language model answers is its own text."""
    if not writes(model):
        return _read(model, look).argmax(-1)
    text = look.inputs[-1][0, 1:]  # without the start, or the first token of all
    return text if model.config.task == "lm" else torch.cat((text, torch.tensor([model.tokenizer.stop])))


def _logits(model: Model, look: Look, count: int) -> Tensor:
    """Those that the answers follow from, (count, V): of a language model the first, for nothing follows its last."""
    found = _read(model, look)
    return found[:count] if model.config.task == "lm" else found[-count:]


@torch.no_grad()
def _read(model: Model, look: Look) -> Tensor:
    """The logits (T, V), or (1, V) of one label."""
    logits: Tensor = model.network(*look.inputs)[0]
    return logits if logits.dim() == 2 else logits[None]


def _measured(logits: Tensor, answers: Tensor) -> Document:
    """The loss of the answers, and the probability of each."""
    loss = F.cross_entropy(logits, answers, reduction="none")  # (T,)
    return {"loss": float(loss.mean()), "probabilities": loss.neg().exp().tolist()}


def _answer(model: Model, item: Any, longest: int) -> str:
    """What the model answers now, always the likeliest."""
    return model.answer(item, longest)
