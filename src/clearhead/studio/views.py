"""The data of each view, as the view modules of `clearhead.look` read it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from clearhead.look.look import Look
from clearhead.look.view import VIEWS
from clearhead.look.views.cells import cells, rank_text
from clearhead.look.views.patches import patch_components
from clearhead.look.views.positions import Positions, positions
from clearhead.look.views.steps import examples
from clearhead.look.views.steps import steps as steps_of
from clearhead.look.views.words import with_neighbours, word_map
from clearhead.nn import SinusoidalPositions
from clearhead.serve.errors import ERROR_RESPONSES, RequestError
from clearhead.serve.inputs import ModelName, RequestBody, ServiceDep
from clearhead.serve.registry import ServedModel
from clearhead.serve.worker import answers
from clearhead.studio.changes import ChangedBody, changed_model
from clearhead.studio.inputs import Document, InputBody, compute_json, continues_text, limit_tokens, read_input
from clearhead.tasks.base.predictor import Predictor
from clearhead.tasks.words import WordVectors

router = APIRouter(responses=ERROR_RESPONSES)

Index = Annotated[int, Field(ge=0, le=10_000)]
Word = Annotated[str, Field(min_length=1, max_length=60)]

CONTINUED = 24  # tokens that a language model adds where its generation is shown
FLOW_TOKENS = 32  # of a text whose flow is shown


# --- one input ---


class StepsBody(ChangedBody):
    """One query of one head."""

    kind: str | None = None
    layer: Index = 0
    head: Index = 0
    query: Index = 0


class BeamBody(InputBody):
    """A beam search of a given width."""

    beams: Annotated[int, Field(ge=2, le=8)] = 4


class CellsBody(InputBody):
    """A text coloured by a unit; by default the unit that follows a feature of the text best."""

    layer: str | None = None
    unit: Index | None = None


class LookBody(InputBody):
    """What to look at: an output that is given (`target`), or that the model generates as it does in Play."""

    target: Annotated[str | None, Field(max_length=2000)] = None


def greedy_look(served: ServedModel, item: Any, target: str | None = None) -> Look:
    """Look at the output that Play shows: the most probable token at each step, not that of a beam search."""
    anew = served.model.generates and not continues_text(served)
    look: Look = served.model.look(item, target, beam_width=1) if anew else served.model.look(item, target)
    return look


@router.post("/look")
async def look(body: LookBody, request: Request, service: ServiceDep) -> Response:
    """The tokens and the attention weights of every layer and head, for the output that Play shows."""
    served = service.get(body.model)
    item = await read_input(body, served)

    def compute() -> bytes:
        seen = greedy_look(served, item, body.target or None)
        return json.dumps({**seen.to_json(), "model": served.name}, ensure_ascii=False).encode()

    [content] = await answers(request, served.call(compute), served.limits.seconds)
    return Response(content, media_type="application/json")


@router.post("/steps")
async def steps(body: StepsBody, request: Request, service: ServiceDep) -> Document:
    """The attention of one query, step by step."""
    served = service.get(body.model)
    item = await read_input(body, served)

    def compute() -> Document:
        if body.generate and served.model.generates:
            look: Look = served.model.look(item, generate=True, max_tokens=CONTINUED)
        else:
            look = greedy_look(served, item, body.target or None)
        place = (body.layer, body.head, body.query, body.kind)
        original = look.steps(*place).to_json()
        if not body.changes:
            return original
        model = changed_model(served, item, body, look)
        with model.open():
            found = steps_of(model.look(), *place, changed=True).to_json()
        return {**found, "original": original}

    return await compute_json(request, served, compute)


@router.get("/steps/examples")
def lecture_examples() -> list[Document]:
    """The lectures' own examples of attention, each with its steps."""
    return [{"name": each.name, "about": each.about, "steps": each.steps().to_json()} for each in examples()]


@router.post("/beam")
async def beam(body: BeamBody, request: Request, service: ServiceDep) -> Document:
    """The tree of a beam search, and the text of each node."""
    served = service.get(body.model)
    item = await read_input(body, served)
    if not served.model.generates:
        raise RequestError(400, "wrong_model", f"{served.name} does not generate, so it has no beams")
    max_tokens = limit_tokens(served, item, CONTINUED)
    return await compute_json(request, served, lambda: beam_document(served, item, body.beams, max_tokens))


def beam_document(served: ServedModel, item: Any, beam_width: int, max_tokens: int = CONTINUED) -> Document:
    """Return the tree with `texts`, the text at each node; `max_tokens` limits what a language model adds."""
    model, prepared = served.model, served.model.prepare(item)
    longest = max_tokens if continues_text(served) else prepared.max_tokens
    tree = model.beam_tree(item, beam_width, max_tokens=longest)
    return {**tree.to_json(), "texts": tree.texts(model.tokenizer.decode, prepared.stop)}


@router.post("/cells")
async def cells_of_text(body: CellsBody, request: Request, service: ServiceDep) -> Document:
    """A text coloured by a unit, and the units that follow a feature of it."""
    served = service.get(body.model)
    text = await read_input(body, served)
    if not continues_text(served):
        message = f"{served.name} is not a language model; units are searched in language models only"
        raise RequestError(400, "wrong_model", message)
    return await compute_json(request, served, lambda: _cells(served.model, text, body))


def _cells(model: Predictor, text: str, body: CellsBody) -> Document:
    ids = model.tokenizer.encode(text)
    tokens = [model.tokenizer.decode([number]) for number in ids]
    ranking = rank_text(model, ids, tokens)
    if not ranking:
        message = "no unit follows a feature of this text; use several lines, some with capitals or quotes"
        raise RequestError(400, "too_short", message)
    layer = body.layer or ranking[0].layer
    unit = body.unit if body.layer and body.unit is not None else ranking[0].unit
    return cells(model.network, (torch.tensor([ids]),), tokens, layer, unit, ranking).to_json()


# --- a model without an input ---


class ModelBody(RequestBody):
    """A model."""

    model: ModelName


class PositionsBody(RequestBody):
    """The positions of a model, or sinusoidal positions of any base, width and length."""

    model: ModelName | None = None
    base: Annotated[float, Field(gt=1, le=1e6)] = 10_000.0
    width: Annotated[int, Field(ge=2, le=256, multiple_of=2)] = 64
    length: Annotated[int, Field(ge=2, le=128)] = 64


class WordMapBody(ModelBody):
    """Words, and how many neighbours of each to show."""

    words: Annotated[list[Word], Field(min_length=1, max_length=12)]
    neighbours: Annotated[int, Field(ge=2, le=20)] = 8


class AnalogyBody(ModelBody):
    """a - b + c."""

    a: Word
    b: Word
    c: Word


@router.post("/components")
async def components(body: ModelBody, request: Request, service: ServiceDep) -> Document:
    """The principal components of a patch embedding."""
    served = service.get(body.model)
    return await compute_json(request, served, lambda: patch_components(served.model.network).to_json())


@router.post("/positions")
async def position_vectors(body: PositionsBody, request: Request, service: ServiceDep) -> Document:
    """Position vectors, and their products by distance."""
    if body.model is None:
        return _sinusoidal(body.base, body.width, body.length)
    served = service.get(body.model)

    def compute() -> Document:
        name, found = next(iter(positions(served.model.network).items()))
        return {"name": name, **found.to_json()}

    return await compute_json(request, served, compute)


@lru_cache(maxsize=16)
def _sinusoidal(base: float, width: int, length: int) -> Document:
    vectors = SinusoidalPositions(width, base).encode(length)  # (T, D)
    return {"name": "", **Positions("sinusoidal", (vectors @ vectors.T).unsqueeze(0), vectors).to_json()}


@router.post("/words")
async def words(body: WordMapBody, request: Request, service: ServiceDep) -> Document:
    """Words and their neighbours, projected to a plane."""
    served = service.get(body.model)
    served.require("words", "answer questions about words")
    return await compute_json(request, served, lambda: _word_map(served.model, body))


def _word_map(model: WordVectors, body: WordMapBody) -> Document:
    lowercase = model.config.tokenizer.lowercase
    chosen = [word.strip().lower() if lowercase else word.strip() for word in body.words]
    near = {word: model.neighbours(word, body.neighbours) for word in chosen}
    vectors, names = model.vectors()
    rows = with_neighbours(vectors, names, chosen, body.neighbours)
    return {**word_map(vectors[rows], [names[row] for row in rows]).to_json(), "near": near}


@router.post("/analogy")
async def analogy(body: AnalogyBody, request: Request, service: ServiceDep) -> Document:
    """The words nearest to a - b + c."""
    served = service.get(body.model)
    served.require("words", "answer questions about words")

    def compute() -> Document:
        nearest = served.model.analogy(body.a, body.b, body.c)
        return {"format": "clearhead-analogy-1", "a": body.a, "b": body.b, "c": body.c, "nearest": nearest}

    return await compute_json(request, served, compute)


# --- any view ---


class ViewBody(InputBody):
    """A view by its name, and the options that it understands."""

    view: Annotated[str, Field(max_length=60)]
    kind: str | None = None
    layer: Index | None = None
    head: Index | None = None
    query: Annotated[int | str | None, Field()] = None
    target: Annotated[str | None, Field(max_length=2000)] = None
    method: Annotated[str | None, Field(max_length=60)] = None
    form: Annotated[Literal["figure", "page"], Field(description="As data with a figure, or as its page reads it.")] = (
        "figure"
    )


@router.get("/views")
def every_view() -> list[Document]:
    """Every view, those from outside the package too: its name, its help and the page that shows it."""
    found = ((name, VIEWS[name]) for name in VIEWS.names())
    return [{"name": name, "help": (view.__doc__ or "").split("\n")[0], "page": view.page} for name, view in found]


@router.post("/view")
async def one_view(body: ViewBody, request: Request, service: ServiceDep) -> Document:
    """A view as data and as a figure, or as its interactive page reads it."""
    served = service.get(body.model)
    item = await read_input(body, served) if body.text or body.image else None
    if body.view == "flow" and isinstance(item, str) and (count := served.model.token_count(item)) > FLOW_TOKENS:
        message = f"a flow of {count} tokens takes minutes; the limit of the page is {FLOW_TOKENS}: shorten the text"
        raise RequestError(400, "too_long", message)
    options = body.model_dump(include={"kind", "layer", "head", "query", "target", "method"})

    def compute() -> Document:
        view = served.model.view(body.view, item, **options)
        if body.form == "page":
            return {"view": body.view, "data": view.page_data()}
        return {"view": body.view, "data": view.to_json(), "svg": view.figure().svg()}

    return await compute_json(request, served, compute)
