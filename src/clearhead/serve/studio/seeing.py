"""The data of each view: what a model computes, as the modules of the views read it."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from pydantic import Field

from clearhead.api import Model
from clearhead.bundled import describe
from clearhead.decode import Settings
from clearhead.errors import ClearheadError
from clearhead.look.beams import beam_tree
from clearhead.look.look import Look
from clearhead.look.see import readable
from clearhead.look.units import rank_units, windows
from clearhead.look.views.cells import cells
from clearhead.look.views.patches import patch_components
from clearhead.look.views.positions import Positions, positions
from clearhead.look.views.words import with_neighbours, word_map
from clearhead.nn import SinusoidalPositions
from clearhead.serve.asking import IMAGES, Asked, ModelName, Serving
from clearhead.serve.failures import FAILURES, Refused
from clearhead.serve.registry import Served
from clearhead.serve.studio.asking import Reading, computed, read, room
from clearhead.serve.studio.beginnings import OF_TASKS, beginnings, passage
from clearhead.serve.studio.play import BEGINNINGS, writes

router = APIRouter(responses=FAILURES)

Document = dict[str, Any]
Index = Annotated[int, Field(ge=0, le=10_000)]
Word = Annotated[str, Field(min_length=1, max_length=60)]

CONTINUED = 24  # tokens that a language model adds where its writing is looked at
WINDOW = 256  # tokens over which units are compared with features


# --- what there is ---


@router.get("/models")
async def models(service: Serving) -> list[Document]:
    """Every model that can be asked, and what the page has to know of it."""
    return [_about(served) for served in service.models.values()]


def _about(served: Served) -> Document:
    facts: Document = {"name": served.name, "task": served.task, "parameters": _parameters(served.model)}
    try:
        about = describe(served.model.run.path)
        facts |= {"title": about.title, "examples": beginnings(about), "passage": passage(about)}
    except ClearheadError:  # a model without a card
        usual = list(OF_TASKS.get(served.task, ()))
        facts |= {"title": f"a model for {served.task}", "examples": usual, "passage": ""}
    sizes = served.model.meta.sizes
    if served.task in IMAGES:
        facts["image"] = {"side": sizes.height, "channels": sizes.channels}
    facts["attends"] = any("attention" in name for name, _ in served.model.network.named_modules())
    facts["writes"] = writes(served.model)
    return facts


def _parameters(model: Model) -> int:
    return sum(each.numel() for each in model.network.parameters())


# --- one input ---


class Stepping(Reading):
    """One query of one head; what a model is to have written, or that it writes now."""

    target: Annotated[str | None, Field(max_length=2000)] = None
    generate: bool = False
    kind: str | None = None
    layer: Index = 0
    head: Index = 0
    query: Index = 0


class Searching(Reading):
    """A beam search."""

    beams: Annotated[int, Field(ge=2, le=8)] = 4


class Colouring(Reading):
    """A text coloured by a unit; the one that follows the text best, unless said."""

    layer: str | None = None
    unit: Index | None = None


@router.post("/steps")
async def steps(asked: Stepping, request: Request, service: Serving) -> Document:
    """One query of one head, step by step."""
    served = service.find(asked.model)
    item = await read(asked, served)

    def compute() -> Document:
        seen = _look(served.model, item, asked)
        return seen.steps(asked.layer, asked.head, asked.query, asked.kind).to_json()

    found: Document = await computed(request, served, compute)
    return found


def _look(model: Model, item: Any, asked: Stepping) -> Look:
    if asked.generate and writes(model):
        return model.look(item, generate=True, longest=CONTINUED)
    return model.look(item, asked.target) if asked.target else model.look(item)


@router.post("/beam")
async def beam(asked: Searching, request: Request, service: Serving) -> Document:
    """The tree of a beam search, and the text of each node."""
    served = service.find(asked.model)
    item = await read(asked, served)
    if not writes(served.model):
        raise Refused(400, "wrong_model", f"{served.name} does not write, so it has no beams")
    longest = room(served, item, CONTINUED)
    found: Document = await computed(request, served, lambda: searched(served.model, item, asked.beams, longest))
    return found


def searched(model: Model, item: Any, beams: int, longest: int = CONTINUED) -> Document:
    """The tree, with `texts`: what is written at each node; a source sets its own longest length."""
    start, decode = BEGINNINGS[model.config.task](model, item), model.tokenizer.decode
    longest = 2 * start.sources[0].size(-1) + 10 if start.sources else longest
    settings, about = Settings(beams=beams, longest=longest), item if isinstance(item, str) else "image"

    def words(ids: Any) -> list[str]:
        return [readable(piece) for piece in model.tokenizer.pieces(ids)]

    tree = beam_tree(model.network, start.sources, start.prompt, start.stop, settings, words, about)
    paths = [tree.ids(node.id) for node in tree.nodes]
    return {**tree.to_json(), "texts": [decode([each for each in path if each != start.stop]) for path in paths]}


@router.post("/cells")
async def coloured(asked: Colouring, request: Request, service: Serving) -> Document:
    """A text coloured by a unit, and the units that follow something in it."""
    served = service.find(asked.model)
    text = await read(asked, served)
    if served.task != "lm":
        raise Refused(400, "wrong_model", f"{served.name} is no language model; units are searched in one that is")
    found: Document = await computed(request, served, lambda: _coloured(served.model, text, asked))
    return found


def _coloured(model: Model, text: str, asked: Colouring) -> Document:
    ids = model.tokenizer.encode(text)
    tokens = [model.tokenizer.decode([number]) for number in ids]
    ranking = rank_units(model.network, windows(ids, tokens, min(WINDOW, len(ids))))
    if not ranking:
        raise Refused(
            400, "too_short", "no unit follows this text; give it several lines, some with capitals or quotes"
        )
    layer = asked.layer or ranking[0].layer
    unit = asked.unit if asked.layer and asked.unit is not None else ranking[0].unit
    return cells(model.network, (torch.tensor([ids]),), tokens, layer, unit, ranking).to_json()


# --- a model by itself ---


class Naming(Asked):
    """A model."""

    model: ModelName


class Placing(Asked):
    """The positions of a model, or sine waves of any base and width."""

    model: ModelName | None = None
    base: Annotated[float, Field(gt=1, le=1e6)] = 10_000.0
    width: Annotated[int, Field(ge=2, le=256, multiple_of=2)] = 64
    length: Annotated[int, Field(ge=2, le=128)] = 64


class Mapping(Naming):
    """Words, and how many neighbours of each to show."""

    words: Annotated[list[Word], Field(min_length=1, max_length=12)]
    neighbours: Annotated[int, Field(ge=2, le=20)] = 8


class Reckoning(Naming):
    """a - b + c."""

    a: Word
    b: Word
    c: Word


@router.post("/components")
async def components(asked: Naming, request: Request, service: Serving) -> Document:
    """The principal components of a patch embedding."""
    served = service.find(asked.model)
    found: Document = await computed(request, served, lambda: patch_components(served.model.network).to_json())
    return found


@router.post("/positions")
async def placed(asked: Placing, request: Request, service: Serving) -> Document:
    """Position vectors, and how their products fall with the distance."""
    if asked.model is None:
        return _waves(asked.base, asked.width, asked.length)
    served = service.find(asked.model)

    def compute() -> Document:
        name, found = next(iter(positions(served.model.network).items()))
        return {"name": name, **found.to_json()}

    found: Document = await computed(request, served, compute)
    return found


@lru_cache(maxsize=16)
def _waves(base: float, width: int, length: int) -> Document:
    vectors = SinusoidalPositions(width, base).encode(length)  # (T, D)
    return {"name": "", **Positions("sinusoidal", (vectors @ vectors.T).unsqueeze(0), vectors).to_json()}


@router.post("/words")
async def mapped(asked: Mapping, request: Request, service: Serving) -> Document:
    """Some words and those nearest to each, on a plane."""
    served = service.find(asked.model)
    served.must("words")
    found: Document = await computed(request, served, lambda: _mapped(served.model, asked))
    return found


def _mapped(model: Model, asked: Mapping) -> Document:
    wanted = [_folded(model, word) for word in asked.words]
    near = {word: model.neighbours(word, asked.neighbours) for word in wanted}
    ids = model.tokenizer.word_ids()
    vectors, names = model.network.vectors[ids], model.tokenizer.pieces(ids)
    rows = with_neighbours(vectors, names, wanted, asked.neighbours)
    return {**word_map(vectors[rows], [names[row] for row in rows]).to_json(), "near": near}


@router.post("/analogy")
async def analogy(asked: Reckoning, request: Request, service: Serving) -> Document:
    """The words nearest to a - b + c."""
    served = service.find(asked.model)
    served.must("words")
    found = await computed(request, served, lambda: served.model.analogy(asked.a, asked.b, asked.c))
    return {"format": "clearhead-analogy-1", "a": asked.a, "b": asked.b, "c": asked.c, "nearest": found}


def _folded(model: Model, word: str) -> str:
    return word.strip().lower() if model.config.tokenizer.lowercase else word.strip()
