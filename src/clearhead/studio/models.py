"""The models of the Studio: what each is, its card, opening another one by its path or its files, and its original.

RUNS/.studio/models/NAME/              the files of a model that was uploaded
"""

from __future__ import annotations

import asyncio
import re
import shutil
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from clearhead import load
from clearhead.errors import ClearheadError, RunError
from clearhead.interop.importing import prepare_import, report_of
from clearhead.interop.parity import compare_import
from clearhead.interop.reference import CLASSES, has_reference
from clearhead.run import BUNDLED, split_card
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import RequestBody, ServiceDep
from clearhead.serve.registry import ServedModel, Service
from clearhead.studio.inputs import Document, compute_json, continues_text
from clearhead.studio.what_if import usual_examples
from clearhead.text.chat_template import PlayTemplate

router = APIRouter(responses=ERROR_RESPONSES)

FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
CARD = 20_000  # characters of a card that are shown
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
SUFFIXES = (".gguf", ".json", ".md", ".model", ".safetensors", ".spm", ".txt", ".yml")  # none that can hold a program
MOST_BYTES = 4_000_000_000  # of one model
# inputs to try with a model that says nothing of its own texts, as imported ones do
PASSAGE = """ANNA: Where is the small key?
TOM: You said, "It is in the blue box." I looked there.
ANNA: Then look again.

He opened the box (it was heavy) and found two keys.
"""  # lines, capitals and quotes, for a model without a text of its own
EXAMPLES = ("Once upon a time, there was a little girl", "The capital of France is", "The cat sat on the mat and")


class OpenBody(RequestBody):
    """A model on this machine."""

    path: Annotated[str, Field(min_length=1, max_length=1000, description="A run, a foreign model, or a bundled name.")]
    upload: Annotated[bool, Field(description="The path is the name of files that were uploaded.")] = False


@router.get("/models")
async def models(service: ServiceDep) -> list[Document]:
    """Every model, with what it reads, what it can do, and inputs to try."""
    return [describe(served) for served in service.models.values()]


def describe(served: ServedModel) -> Document:
    """What the page needs to know of a model."""
    predictor, network, sizes = served.model, served.model.outline, served.model.meta.sizes
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
        "origin": origin(predictor),
        "scores": {} if predictor.about is None else predictor.about.scores,
        "examples": predictor.examples() or (list(EXAMPLES) if predictor.reads == "text" else []),
        "passage": predictor.passage() or (PASSAGE if predictor.reads == "text" else ""),
        "held_out": usual_examples(predictor),
    }
    if predictor.reads == "image":
        found["image"] = {"side": sizes.height, "channels": sizes.channels}
    return found


def origin(predictor: Any) -> str:
    """Where a model comes from: bundled with the package, imported from another program's files, or trained."""
    folder = Path(predictor.run.path)
    if folder.parent == BUNDLED:
        return "bundled"
    file = folder / "card.md"
    facts, _ = split_card(file.read_text(encoding="utf-8")) if file.is_file() else ({}, "")
    return "imported" if facts.get("imported_from") else "trained"


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


@router.post("/models/{name}/parity")
async def parity(name: Annotated[str, Field(max_length=200)], service: ServiceDep) -> Document:
    """How equal an imported model is to its original: the report of the import, compared with `transformers`."""
    folder = Path(service.get(name).model.run.path)
    return {"name": name, "report": await asyncio.to_thread(compare_with_original, name, folder)}


def compare_with_original(name: str, folder: Path) -> list[str]:
    """Sentences: what became of the tensors, and how far tokens and numbers are from those of the original."""
    file = folder / "card.md"
    facts, _ = split_card(file.read_text(encoding="utf-8")) if file.is_file() else ({}, "")
    source = Path(str(facts.get("imported_from", "")))
    if not facts.get("imported_from"):
        raise RunError(f"{name} was not imported, so it has no original to compare with")
    if not source.exists():
        raise RunError(f"the original of {name} is no longer at {source}: put it back to compare with it")
    imported = prepare_import(source)
    sentences = [line.removeprefix("- ") for line in report_of(imported).text().splitlines()]
    if imported.plan.task not in CLASSES or not imported.family.in_transformers:
        return [*sentences, "not compared: transformers does not know this kind of model"]
    if not has_reference():
        return [*sentences, "not compared: transformers is not installed"]
    return [*sentences, *compare_import(imported)]


# --- opening ---


@router.post("/models/open")
async def open_model(body: OpenBody, request: Request, service: ServiceDep) -> Document:
    """Load a model from this machine: a run directory, a foreign model, a bundled name, or files that were uploaded."""
    if not body.upload:
        return describe(await add_model(service, Path(body.path).name, body.path))
    folder = _uploads(request) / body.path
    if not NAME.fullmatch(body.path) or not folder.is_dir():
        raise RunError(f"no model called {body.path[:80]!r} was uploaded")
    files = [each for each in folder.iterdir() if each.suffix == ".gguf"]
    try:
        return describe(await add_model(service, body.path, files[0] if files else folder))
    except ClearheadError:
        shutil.rmtree(folder, ignore_errors=True)  # files that are no model are of no use
        raise


async def add_model(service: Service, name: str, path: str | Path) -> ServedModel:
    """Load a model under a name; under the name and a number if another model has it already."""
    known = service.models.get(name)
    if known is not None and Path(known.model.run.path) == Path(path):
        return known
    model = await asyncio.to_thread(load, path)
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    for free in names:
        if free not in service.models:
            served = await asyncio.to_thread(ServedModel, free, model, service.limits, service.metrics)
            return service.models.setdefault(free, served)
        if Path(service.models[free].model.run.path) == Path(model.run.path):
            return service.models[free]
    raise RunError(f"there are a thousand models called {name}: rename it")


# --- uploads ---


def _uploads(request: Request) -> Path:
    notes: Path = request.app.state.runs.notes
    return notes / "models"


@router.post("/models/uploads/{name}")
async def start_upload(name: Annotated[str, Field(max_length=200)], request: Request) -> Document:
    """Make a folder for the files of a model; the response has the name of its own that it got."""
    safe = UNSAFE.sub("-", name).strip("-.")[:60]
    if not NAME.fullmatch(safe):
        raise RunError("the name of the model has no usable characters: rename it with letters and digits")
    for number in count(1):
        folder = _uploads(request) / (safe if number == 1 else f"{safe}-{number}")
        try:
            folder.mkdir(parents=True)
            return {"name": folder.name}
        except FileExistsError:
            continue
    raise AssertionError("there is always another number")


@router.put("/models/uploads/{name}/{file}")
async def upload_part(
    name: Annotated[str, Field(max_length=200)],
    file: Annotated[str, Field(max_length=200)],
    request: Request,
    at: Annotated[int, Query(ge=0, description="Bytes of the file that were sent before.")] = 0,
) -> Document:
    """Add some bytes to a file of a model that is being uploaded: large files come in parts."""
    folder = _uploads(request) / name
    if not NAME.fullmatch(name) or not folder.is_dir():
        raise RunError(f"no upload called {name[:80]!r} was begun")
    if not NAME.fullmatch(file) or Path(file).suffix not in SUFFIXES:
        raise RunError(f"{file[:80]!r} is no file of a model that can be uploaded: {', '.join(SUFFIXES)}")
    path, content = folder / file, await request.body()
    if at != (path.stat().st_size if path.exists() else 0):
        raise RunError(f"a part of {file} is missing: upload it again")
    if sum(each.stat().st_size for each in folder.iterdir()) + len(content) > MOST_BYTES:
        raise RunError(f"the model is larger than {MOST_BYTES:,} bytes: open it by its path instead")
    with path.open("ab") as opened:
        opened.write(content)
    return {"size": at + len(content)}
