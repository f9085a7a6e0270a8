"""A model with parts switched off, beside the original: its answer, and how probable it finds the original's answer.

The loss is that of the answer which the original model gives: of every token of its text, or of its label.

    T tokens, V vocabulary or labels
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.data import builtin, hub
from clearhead.data.catalogue import CATALOGUE
from clearhead.data.examples import AnyDataset, Dataset
from clearhead.errors import DataError, ProbeError
from clearhead.look.build import evaluation_mode
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
from clearhead.look.views.importance import gradient_by_batch
from clearhead.nn import NoRelativePositions, PositionScheme
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import ModelName, RequestBody, ServiceDep
from clearhead.serve.registry import ServedModel
from clearhead.studio.inputs import Document, InputBody, compute_json, continues_text, limit_tokens, read_input
from clearhead.studio.play import stream
from clearhead.tasks import TASKS
from clearhead.tasks.base.predictor import Predictor
from clearhead.tasks.base.task import Workspace, read_dataset

router = APIRouter(responses=ERROR_RESPONSES)

CONTINUED = 40  # tokens that a language model adds
EXAMPLES = 160  # for each batch
UNKNOWN = 6.0  # loss for each prediction, in nats, beyond which examples are of another kind than a model knows
BLOCK = re.compile(r"(encoder|decoder)\.\d+")

Batches = Annotated[int, Field(ge=1, le=64)]
HeldOut = Annotated[Literal["builtin", "own"], Field(description="Built-in examples, or its own held-out ones.")]

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


# --- over held-out examples ---


class DataBody(WhatIfBody):
    """What is measured: what is switched off (`chosen`), or every head or block by itself."""

    each: Literal["chosen", "heads", "layers"] = "chosen"
    batches: Batches = 8
    data: HeldOut = "builtin"


@router.post("/what-if/data")
async def what_if_data(body: DataBody, service: ServiceDep) -> StreamingResponse:
    """The loss on held-out examples without parts of the model, as lines of JSON: progress, and each result."""
    served = service.get(body.model)
    return StreamingResponse(stream(served, lambda: measured(served, body)), media_type="application/x-ndjson")


def measured(served: ServedModel, body: DataBody) -> Iterator[Document]:
    """Yield the loss of the whole model on held-out batches, then the rise without each part, and progress between.

    Other requests of the model are computed between two batches, so parts are off during a batch only.
    """
    network = served.model.network
    yield {"done": 0, "of": 0}  # reading the examples may take a while
    batches, loss = _held_out(served, body.data, body.batches)
    without = {"": WhatIfBody(model=body.model), **_parts_to_measure(served.model, body)}
    done, whole = 0, 0.0
    for name, off in without.items():
        total, count = 0.0, 0.0
        for batch in batches:
            with evaluation_mode(network), torch.no_grad(), switched_off(network, off):
                value, counted = loss(network, batch)
            total, count, done = total + float(value), count + float(counted), done + 1
            yield {"done": done, "of": len(without) * len(batches)}
        mean = total / max(count, 1.0)
        whole = whole if name else mean
        if not name:
            _require_known(served, body.data, mean)
        yield {"name": name, "loss": mean, "change": mean - whole, "count": int(count)}


class ImportanceBody(RequestBody):
    """A model, and on how many held-out batches its heads are ranked."""

    model: ModelName
    batches: Batches = 4
    data: HeldOut = "builtin"


@router.post("/importance")
async def importance(body: ImportanceBody, service: ServiceDep) -> StreamingResponse:
    """How strongly the loss reacts to each head, as lines of JSON: after each batch the mean up to then."""
    served = service.get(body.model)
    return StreamingResponse(stream(served, lambda: ranked(served, body)), media_type="application/x-ndjson")


def ranked(served: ServedModel, body: ImportanceBody) -> Iterator[Document]:
    """Yield the importance of all heads after each batch; the loss says whether the model knows such examples."""
    network = served.model.network
    yield {"done": 0, "of": 0}  # reading the examples may take a while
    batches, loss = _held_out(served, body.data, body.batches)
    with evaluation_mode(network):
        for done, found in enumerate(gradient_by_batch(network, batches, loss), start=1):
            _require_known(served, body.data, found.loss)
            yield {"done": done, "of": len(batches), "data": found.to_json()}


def _require_known(served: ServedModel, data: str, loss: float) -> None:
    """Refuse built-in examples of another kind than the model knows."""
    if data == "builtin" and loss > UNKNOWN:
        raise ProbeError(
            f"{served.name} does not know examples like the built-in ones (a loss of {loss:.1f}): "
            "measure on its own data"
        )


@lru_cache(maxsize=8)
def _held_out(served: ServedModel, data: str, count: int) -> tuple[list[Any], Callable[..., Any]]:
    """Some batches of held-out examples, kept for the next measurement, and the loss of a network on one of them."""
    model = served.model
    batches, loss = builtin_batches(model, count) if data == "builtin" else own_batches(model, count)
    if not batches:
        raise ProbeError(f"the data of {served.name} has no held-out examples to measure on")
    return batches, loss


def builtin_batches(model: Predictor, count: int) -> tuple[list[Any], Callable[..., Any]]:
    """Batches of built-in examples."""
    kind = TASKS[model.task].data_kind
    if kind == "text":
        return model.validation_batches("builtin", count)
    try:
        return _some_batches(model, builtin.examples(kind), count)
    except DataError as problem:
        raise ProbeError(
            f"{model.name} does not know examples like the built-in ones (their labels are others): "
            "measure on its own data"
        ) from problem


def own_batches(model: Predictor, count: int) -> tuple[list[Any], Callable[..., Any]]:
    """Batches of the examples that were held out of its training data; nothing is downloaded for them."""
    if missing := missing_data(model):
        raise ProbeError(
            f"the data that {model.name} was trained on is not on this machine: "
            f"clearhead data get {missing[0]} downloads it"
        )
    kind = TASKS[model.task].data_kind
    if kind == "text":
        return model.validation_batches(None, count)
    with _workspace(model) as workspace:
        held_out = list(read_dataset(model.config, kind, workspace).validation)
    return _some_batches(model, held_out, count)


def usual_examples(model: Predictor) -> str:
    """On what the page measures first: built-in examples where its own are a large corpus, which takes long to read."""
    return "builtin" if any(not CATALOGUE[name].make for name in _corpora(model)) else "own"


def missing_data(model: Predictor) -> list[str]:
    """The datasets that a model was trained on and that would have to be downloaded."""
    return [name for name in _corpora(model) if hub.origin(CATALOGUE[name]) is None]


def _corpora(model: Predictor) -> list[str]:
    return [name for name in str(model.config.data.path).split("+") if name in CATALOGUE]


def _some_batches(model: Predictor, every: Sequence[Any], count: int) -> tuple[list[Any], Callable[..., Any]]:
    """Batches of some examples, evenly spaced: encoding all of them would take seconds."""
    some = every[:: max(1, len(every) // (EXAMPLES * count))]
    config = model.config.model_copy(update={"data": model.config.data.model_copy(update={"path": "builtin"})})
    dataset: AnyDataset = Dataset(TASKS[model.task].data_kind, some, some, "builtin")
    with _workspace(model, whole=True, dataset=dataset) as workspace:
        task = TASKS[model.task](config, workspace)
        return list(islice(task.validation(), count)), task.loss


@contextmanager
def _workspace(model: Predictor, **options: Any) -> Iterator[Workspace]:
    tokenizer = None if model.reads == "image" and not model.generates else model.tokenizer
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Workspace(Path(folder), tokenizer, model.meta, **options)


def _parts_to_measure(model: Predictor, body: DataBody) -> dict[str, WhatIfBody]:
    """What is switched off, by the name that the page shows."""
    found = parts(model)
    match body.each:
        case "heads":
            names = [f"{layer}:{head}" for layer, count in found["heads"].items() for head in range(count)]
            return {name: WhatIfBody(model=body.model, heads=[name]) for name in names}
        case "layers":
            return {name: WhatIfBody(model=body.model, layers=[name]) for name in found["layers"]}
    return {"chosen": body}


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
