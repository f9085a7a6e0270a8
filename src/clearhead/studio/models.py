"""The models of the Studio: what each is, its card, and opening another one from this machine."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from clearhead import load
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import RequestBody, ServiceDep
from clearhead.serve.registry import ServedModel, Service
from clearhead.studio.inputs import Document, compute_json, continues_text
from clearhead.text.chat_template import PlayTemplate

router = APIRouter(responses=ERROR_RESPONSES)

FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
CARD = 20_000  # characters of a card that are shown


class OpenBody(RequestBody):
    """A model on this machine."""

    path: Annotated[str, Field(min_length=1, max_length=1000, description="A run, a foreign model, or a bundled name.")]


@router.get("/models")
async def models(service: ServiceDep) -> list[Document]:
    """Every model, with what it reads, what it can do, and inputs to try."""
    return [describe(served) for served in service.models.values()]


def describe(served: ServedModel) -> Document:
    """What the page needs to know of a model."""
    predictor, network, sizes = served.model, served.model.network, served.model.meta.sizes
    found: Document = {
        "name": served.name,
        "task": predictor.task,
        "title": predictor.title if predictor.about is None else predictor.about.title,
        "verb": predictor.verb,
        "reads": predictor.reads,
        "generates": predictor.generates,
        "continues": predictor.generates and continues_text(served),
        "attends": any("attention" in name for name, _ in network.named_modules()),
        "writes": predictor.generates,
        "chats": has_template(predictor),
        "parameters": sum(each.numel() for each in network.parameters()),
        "examples": predictor.examples(),
        "passage": predictor.passage(),
    }
    if predictor.reads == "image":
        found["image"] = {"side": sizes.height, "channels": sizes.channels}
    return found


def has_template(predictor: Any) -> bool:
    """Tell whether a model learned to chat: it has a template of its own."""
    template = getattr(predictor, "chat_template", None)
    return template is not None and not isinstance(template, PlayTemplate)


@router.get("/models/{name}/card")
async def card(name: Annotated[str, Field(max_length=200)], request: Request, service: ServiceDep) -> Document:
    """The card of a model, its folder and its size on disk."""
    served = service.get(name)

    def read() -> Document:
        folder = Path(served.model.run.path)
        file = folder / "card.md"
        text = file.read_text(encoding="utf-8")[:CARD] if file.is_file() else ""
        weights = sum(each.stat().st_size for each in folder.glob("*.safetensors"))
        return {"name": name, "folder": str(folder), "bytes": weights, "card": FRONT_MATTER.sub("", text).strip()}

    return await compute_json(request, served, read)


@router.post("/models/open")
async def open_model(body: OpenBody, service: ServiceDep) -> Document:
    """Load a model from this machine: a run directory, a Hugging Face folder, a .gguf file, or a bundled name."""
    return describe(await add_model(service, Path(body.path).name, body.path))


async def add_model(service: Service, name: str, path: str | Path) -> ServedModel:
    """Load a model under a name, unless one is already served under it."""
    if name not in service.models:
        model = await asyncio.to_thread(load, path)
        served = await asyncio.to_thread(ServedModel, name, model, service.limits, service.metrics)
        service.models.setdefault(name, served)
    return service.models[name]
