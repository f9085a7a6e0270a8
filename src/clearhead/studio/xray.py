"""The X-ray of a model in the Studio: its graph first, then the tensors of what is opened, as it is or with changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any, cast

from fastapi import APIRouter, Request
from pydantic import Field

from clearhead.look.views.xray import XRay
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import ServiceDep
from clearhead.serve.registry import ServedModel
from clearhead.studio.changes import ChangedBody, changed_model, original_answer
from clearhead.studio.inputs import Document, compute_json, continues_text, limit_tokens, read_input
from clearhead.studio.views import CONTINUED, Index, beam_document

router = APIRouter(responses=ERROR_RESPONSES)

EAGER = 500_000  # numbers of a model up to which all of them are sent at once
KEPT = 4  # X-rays that are kept, so that opening a part does not compute the model again

Key = tuple[Any, ...]


class XRayBody(ChangedBody):
    """What is drawn, and the groups or parts whose tensors come with it; `eager` is all of a small model."""

    eager: bool = False
    items: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=400)] = []


class ValuesBody(ChangedBody):
    """A group or a part of the graph."""

    item: Annotated[str, Field(max_length=200)]


class WeightsBody(ChangedBody):
    """A number of a part that a matrix computes."""

    part: Annotated[str, Field(max_length=200)]
    row: Index


class _Recent:
    """The last X-rays; a model computes in one thread, and different models do not share keys."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Key, XRay] = OrderedDict()

    def get(self, key: Key, compute: Callable[[], XRay]) -> XRay:
        found = self.kept.pop(key, None) or compute()
        self.kept[key] = found
        while len(self.kept) > KEPT:
            self.kept.popitem(last=False)
        return found


_recent = _Recent()


async def _answer(
    body: ChangedBody, request: Request, service: ServiceDep, show: Callable[[XRay, ServedModel, Any], Document]
) -> Document:
    served = service.get(body.model)
    item = await read_input(body, served)
    return await compute_json(request, served, lambda: show(_find(served, item, body), served, item))


def _find(served: ServedModel, item: Any, body: ChangedBody) -> XRay:
    """The X-ray, with its changes; that of the original is kept beside it."""
    key = (id(served), body.text, body.image, body.target, body.generate, body.beams)
    original = _recent.get(key, lambda: _compute(served, item, body))
    if not body.changes:
        return original
    changes = (*key, tuple(body.changes), body.follow)
    return _recent.get(changes, lambda: _changed(served, item, body, original))


def _compute(served: ServedModel, item: Any, body: ChangedBody) -> XRay:
    model: Any = served.model
    search = {"beam_width": body.beams} if body.beams else {}
    if body.generate and model.generates:
        look = model.look(item, generate=True, max_tokens=CONTINUED, **search)
        return XRay.of(look, read=len(model.prepare(item).prompt))
    if search and not body.target and model.generates and not continues_text(served):
        return XRay.of(model.look(item, **search))
    return cast(XRay, model.view("xray", item, target=body.target or None))


def _changed(served: ServedModel, item: Any, body: ChangedBody, original: XRay) -> XRay:
    model = changed_model(served, item, body, original.look)
    temperature = 1.0 if body.temperature is None else body.temperature.value
    read = min(original.read, len(model.prepared.decoder)) if continues_text(served) else original.read
    with model.open():
        return XRay.of(model.look(), read=read, changed=True, temperature=temperature)


@router.post("/xray")
async def xray(body: XRayBody, request: Request, service: ServiceDep) -> Document:
    """The graph of a model for one input, without its tensors; with the beams of a search where they are asked for."""

    def show(found: XRay, served: ServedModel, item: Any) -> Document:
        document = found.outline()
        items = [""] if body.eager and found.numbers <= EAGER else body.items
        if items:
            document["values"] = {id: value for each in items for id, value in found.values(each).items()}
        if body.beams > 1 and served.model.generates and not body.changes:
            limit = limit_tokens(served, item, CONTINUED)
            document["beam"] = beam_document(served, item, body.beams, limit)
        return document

    return await _answer(body, request, service, show)


@router.post("/xray/values")
async def xray_values(body: ValuesBody, request: Request, service: ServiceDep) -> Document:
    """The tensors of a part or of everything in a group, as float32 in base64."""
    return await _answer(body, request, service, lambda found, _served, _item: found.values(body.item))


@router.post("/xray/weights")
async def xray_weights(body: WeightsBody, request: Request, service: ServiceDep) -> Document:
    """The rows of the matrices that one number was computed with, one for each input."""
    return await _answer(
        body, request, service, lambda found, _served, _item: {"rows": found.weight_row(body.part, body.row)}
    )


@router.post("/xray/answer")
async def xray_answer(body: ChangedBody, request: Request, service: ServiceDep) -> Document:
    """What the model answers as it is, and what it answers with the changes."""
    served = service.get(body.model)
    item = await read_input(body, served)

    def compute() -> Document:
        original = _find(served, item, body.model_copy(update={"changes": []}))
        model = changed_model(served, item, body.model_copy(update={"follow": False}), original.look)
        with model.open():
            now = model.answer(body.temperature)
        return {"original": original_answer(served, original.look), "changed": now, "text": model.prepared.text}

    return await compute_json(request, served, compute)
