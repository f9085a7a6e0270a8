"""The X-ray of a model in the Studio: its graph first, then the tensors of what is opened."""

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
from clearhead.studio.inputs import Document, InputBody, compute_json, read_input
from clearhead.studio.views import CONTINUED, Index

router = APIRouter(responses=ERROR_RESPONSES)

KEPT = 4  # X-rays that are kept, so that opening a part does not compute the model again

Key = tuple[Any, ...]


class XRayBody(InputBody):
    """An input; with an output that is given (`target`), or while a language model continues the text (`generate`)."""

    target: Annotated[str | None, Field(max_length=2000)] = None
    generate: bool = False


class ValuesBody(XRayBody):
    """A group or a part of the graph."""

    item: Annotated[str, Field(max_length=200)]


class WeightsBody(XRayBody):
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


async def _answer(body: XRayBody, request: Request, service: ServiceDep, show: Callable[[XRay], Document]) -> Document:
    served = service.get(body.model)
    item = await read_input(body, served)
    key = (id(served), body.text, body.image, body.target, body.generate)
    return await compute_json(request, served, lambda: show(_recent.get(key, lambda: _compute(served, item, body))))


def _compute(served: ServedModel, item: Any, body: XRayBody) -> XRay:
    model: Any = served.model
    if not body.generate or not model.generates:
        return cast(XRay, model.view("xray", item, target=body.target or None))
    look = model.look(item, generate=True, max_tokens=CONTINUED)
    return XRay.of(look, read=len(model.prepare(item).prompt))


@router.post("/xray")
async def xray(body: XRayBody, request: Request, service: ServiceDep) -> Document:
    """The graph of a model for one input, without its tensors."""
    return await _answer(body, request, service, lambda found: found.outline())


@router.post("/xray/values")
async def xray_values(body: ValuesBody, request: Request, service: ServiceDep) -> Document:
    """The tensors of a part or of everything in a group, as float32 in base64."""
    return await _answer(body, request, service, lambda found: found.values(body.item))


@router.post("/xray/weights")
async def xray_weights(body: WeightsBody, request: Request, service: ServiceDep) -> Document:
    """The rows of the matrices that one number was computed with, one for each input."""
    return await _answer(body, request, service, lambda found: {"rows": found.weight_row(body.part, body.row)})
