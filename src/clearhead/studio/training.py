"""The routes to the trainings: start, pause, resume, stop, and everything that the page shows of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from clearhead import load
from clearhead.data.readers import READERS
from clearhead.look.views.history import FORMAT, read_history
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import RequestBody, ServiceDep
from clearhead.serve.registry import ServedModel
from clearhead.studio.inputs import Document
from clearhead.studio.runs import Runs
from clearhead.tasks import TASKS

router = APIRouter(responses=ERROR_RESPONSES)


def _runs(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


RunsDep = Annotated[Runs, Depends(_runs)]
Name = Annotated[str, Field(max_length=100)]


class TrainBody(RequestBody):
    """A training to start."""

    task: Annotated[str, Field(max_length=100, description="A name that `/studio/api/tasks` lists.")]
    size: Literal["tiny", "small", "base"] = "tiny"
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 300
    upload: Annotated[str | None, Field(description="The name of an uploaded file; default: built-in data.")] = None


@router.get("/tasks")
def tasks() -> list[Document]:
    """Every task that can be trained: its name, its title, the data that it needs, whether one file can hold it."""
    found = sorted((TASKS[name] for name in TASKS.names()), key=lambda task: task.rank)
    return [
        {
            "name": task.name,
            "title": task.title,
            "needs": READERS[task.data_kind].title,
            "reads": task.predictor.reads,
            "upload": task.predictor.reads != "image",
        }
        for task in found
    ]


@router.get("/runs")
def list_runs(runs: RunsDep) -> Document:
    """All trainings, newest first, and the uploaded files."""
    return {"runs": [runs.describe(name) for name in runs.names()], "uploads": runs.uploads()}


@router.post("/runs")
def start(body: TrainBody, runs: RunsDep) -> Document:
    """Start a training."""
    name = runs.start(TASKS[body.task].name, "builtin", body.size, body.steps, body.upload)
    return runs.describe(name)


@router.get("/runs/{name}")
def run(name: Name, runs: RunsDep) -> Document:
    """A training with all its measurements and the end of its log."""
    found = runs.describe(name)
    return {"format": "clearhead-run-1", **found, "metrics": runs.metrics(name), "said": runs.log_tail(name)}


@router.get("/runs/{name}/attention")
def attention(name: Name, runs: RunsDep) -> Document:
    """The attention of the fixed example at each evaluation; empty before the first, or without attention."""
    folder = runs.attention(name)
    if not any(folder.glob("step-*.safetensors")):
        return {"format": FORMAT, "steps": [], "attention": {}}
    return read_history(folder).to_json()


@router.post("/runs/{name}/use")
async def use(name: Name, runs: RunsDep, service: ServiceDep) -> Document:
    """Load the model of a finished training under the name of its run."""
    path = runs.finished(name)
    model = await asyncio.to_thread(load, path)
    if name not in service.models:
        service.models[name] = ServedModel(name, model, service.limits, service.metrics)
    return runs.describe(name)


@router.post("/runs/{name}/{action}")
def change(name: Name, action: Literal["pause", "resume", "stop"], runs: RunsDep) -> Document:
    """Pause, resume or stop a training."""
    {"pause": runs.pause, "resume": runs.resume, "stop": runs.stop}[action](name)
    return runs.describe(name)


@router.put("/runs/uploads/{name}")
async def upload(name: Annotated[str, Field(max_length=200)], request: Request, runs: RunsDep) -> Document:
    """Store a file to train on; the response has the name under which it is stored."""
    return {"name": runs.upload(Path(name).name, await request.body())}
