"""The routes to the trainings: begin, pause, go on, stop, and all that a page shows of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from clearhead.api import load
from clearhead.look.views.history import FORMAT, read_history
from clearhead.serve.asking import Asked, Serving
from clearhead.serve.failures import FAILURES
from clearhead.serve.registry import Served
from clearhead.serve.studio.runs import Runs

router = APIRouter(prefix="/runs", responses=FAILURES)

Document = dict[str, Any]
Task = Literal["translate", "lm", "classify", "tag", "vision", "caption", "words"]


def _runs(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


Kept = Annotated[Runs, Depends(_runs)]
Name = Annotated[str, Field(max_length=100)]


class Beginning(Asked):
    """A training to begin."""

    task: Task
    size: Literal["tiny", "small", "base"] = "tiny"
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 300
    upload: Annotated[str | None, Field(description="The name of an uploaded file; built-in data unless said.")] = None


@router.get("")
def every(runs: Kept) -> Document:
    """All trainings, the newest first, and the files that were uploaded."""
    return {"runs": [runs.describe(name) for name in runs.names()], "uploads": runs.uploads()}


@router.post("")
def begin(asked: Beginning, runs: Kept) -> Document:
    """Begin a training."""
    name = runs.start(asked.task, "builtin", asked.size, asked.steps, asked.upload)
    return runs.describe(name)


@router.get("/{name}")
def one(name: Name, runs: Kept) -> Document:
    """A training, with every measurement and the end of its log."""
    found = runs.describe(name)
    return {"format": "clearhead-run-1", **found, "metrics": runs.metrics(name), "said": runs.said(name)}


@router.get("/{name}/attention")
def attention(name: Name, runs: Kept) -> Document:
    """Where the fixed example looked at each evaluation so far; nothing before the first, or without attention."""
    folder = runs.attention(name)
    if not any(folder.glob("step-*.safetensors")):
        return {"format": FORMAT, "steps": [], "attention": {}}
    return read_history(folder).to_json()


@router.post("/{name}/use")
async def use(name: Name, runs: Kept, service: Serving) -> Document:
    """Load the model of a finished training, under the name of its run."""
    place = runs.finished(name)
    model = await asyncio.to_thread(load, place)
    if name not in service.models:
        service.models[name] = Served(name, model, service.limits, service.metrics)
    return runs.describe(name)


@router.post("/{name}/{verb}")
def change(name: Name, verb: Literal["pause", "resume", "stop"], runs: Kept) -> Document:
    """Pause a training, go on with it, or stop it."""
    {"pause": runs.pause, "resume": runs.resume, "stop": runs.stop}[verb](name)
    return runs.describe(name)


@router.put("/uploads/{name}")
async def upload(name: Annotated[str, Field(max_length=200)], request: Request, runs: Kept) -> Document:
    """Keep a file to train on; the answer says under which name."""
    return {"name": runs.upload(Path(name).name, await request.body())}
