"""Trainings as separate processes: `clearhead train` and `clearhead resume`, as a user would type them.

    RUNS/translate-20260114-101500/        the run directory
    RUNS/.studio/NAME.json                 how it was started, and its process id
    RUNS/.studio/NAME.log                  its output
    RUNS/.studio/uploads/                  uploaded files
    RUNS/.studio/token                     what a client must know

A training does not need the server: it continues when the server is killed, and a server that is started on the same
folder finds it again. A training holds its log locked while it runs; that is how its state is known. The routes to
them are at the end of the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from clearhead.config import describe, override
from clearhead.data.check import Report, check
from clearhead.data.dataset import read
from clearhead.data.readers import READERS
from clearhead.errors import ClearheadError, RunError
from clearhead.files import read_lines, write_text
from clearhead.interop.exporting import EXPORTS, Exported, export
from clearhead.look.views.history import FORMAT, read_history
from clearhead.serve.errors import ERROR_RESPONSES
from clearhead.serve.inputs import RequestBody, ServiceDep
from clearhead.studio.inputs import Document
from clearhead.studio.models import add_model
from clearhead.tasks import TASKS, default_config
from clearhead.train import checkpoints

router = APIRouter(responses=ERROR_RESPONSES)

State = Literal["running", "paused", "stopped", "finished", "failed"]

PROGRAM = (sys.executable, "-m", "clearhead")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
MIN_INTERVAL = 10  # steps between two evaluations, and between two checkpoints
LOG_TAIL = 4000  # characters of a log that are shown
PREVIEW = 5  # lines of an uploaded file that are shown
TIMES_TAIL = 4000  # bytes of times.jsonl from which the rate is measured
ASKED = {  # the route and the field with which a program asks a model that is served
    **{verb: [verb, "text"] for verb in ("translate", "classify", "tag")},
    "embed": ["v1/embeddings", "input"],
    "generate": ["v1/completions", "prompt"],
}
KILLED = "it ended without a word: perhaps it was killed, or the machine ran out of memory"
MAX_STEPS = re.compile(r"max_steps: \d+")
SETTING = re.compile(r"[a-z_]+(\.[a-z_0-9]+)*=[^\n]{1,200}")


@dataclass(frozen=True)
class Record:
    """How a training was last started."""

    name: str
    task: str
    data: str  # as shown to the user
    words: tuple[str, ...]  # the arguments of `clearhead`
    pid: int
    started: float
    paused: bool = False
    stopped: bool = False  # by the user, not by an error


class Runs:
    """The trainings of one folder; `program` is the command that gets the arguments of a training."""

    def __init__(self, folder: Path, program: Sequence[str] = PROGRAM):
        self.folder, self.program = folder, program
        self.notes = folder / ".studio"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, task: str, data: str, size: str, steps: int, upload: str | None = None, settings: Sequence[str] = ()
    ) -> str:
        """Start a training and return its name; `settings` are key=value, as `clearhead train` takes them."""
        if upload:
            _refuse_images(task)
        override(default_config(task, size), _check_settings(settings))  # a wrong one is told before anything starts
        name = self._new_name(task)
        interval = max(MIN_INTERVAL, steps // 20)
        source = str(self.uploaded(upload)) if upload else data
        given = (
            f"train.max_steps={steps}",
            f"train.evaluate_every={interval}",
            f"train.checkpoint_every={interval}",
            *(self._kind_setting(upload, task) if upload else ()),
            *settings,
        )
        words = ("train", task, "--data", source, "--size", size, "--out", str(self.folder / name), *given)
        self._launch(Record(name, task, upload or data, words, 0, time.time()))
        return name

    def resume(self, name: str) -> None:
        """Continue a paused training, or restart a stopped one from its newest checkpoint."""
        record, state = self.record(name), self.state(name)
        if state == "paused":
            os.kill(record.pid, signal.SIGCONT)
            self._write(replace(record, paused=False))
        elif state in ("stopped", "failed"):
            has_config = (self.folder / name / "config.yaml").is_file()
            words = ("resume", str(self.folder / name)) if has_config else record.words
            self._launch(replace(record, words=words, paused=False, stopped=False))
        else:
            raise RunError(f"{name} is {state}: only a paused, stopped or failed training can be resumed")

    def pause(self, name: str) -> None:
        """Suspend the process; nothing is lost, and the processor is free."""
        record = self._require(name, "running")
        os.kill(record.pid, signal.SIGSTOP)
        self._write(replace(record, paused=True))

    def stop(self, name: str) -> None:
        """End the process; its newest checkpoint stays, and can be resumed."""
        record = self._require(name, "running", "paused")
        self._write(replace(record, paused=False, stopped=True))
        os.kill(record.pid, signal.SIGTERM)
        os.kill(record.pid, signal.SIGCONT)  # a suspended process handles SIGTERM only when it continues

    def finish(self, name: str) -> None:
        """End a stopped training at its newest checkpoint: it is evaluated, and its model can be used."""
        record = self._require(name, "stopped", "failed")
        if (step := self.checkpoint(name)) is None:
            raise RunError(f"{name} has no checkpoint yet, so there is no model to use: start it again")
        config = self.folder / name / "config.yaml"
        write_text(config, MAX_STEPS.sub(f"max_steps: {step}", config.read_text(encoding="utf-8")))
        self._launch(replace(record, words=("resume", str(self.folder / name)), paused=False, stopped=False))

    def delete(self, name: str) -> None:
        """Remove a training that has ended, with its checkpoints, its model and its log."""
        self._require(name, "stopped", "failed", "finished")
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self._log(name).unlink(missing_ok=True)
        self._note(name).unlink()

    def actions(self, name: str) -> list[str]:
        """What can be done with a training now; it resumes only where a checkpoint is."""
        state = self.state(name)
        if state in ("running", "paused"):
            return ["pause" if state == "running" else "resume", "stop"]
        if state == "finished":
            return ["use", "export", "serve", "delete"]
        return [*(["resume", "finish"] if self.checkpoint(name) is not None else []), "delete"]

    def token(self) -> str:
        """The token of a Studio on this folder, in a file of its owner: a page reconnects to a Studio started again."""
        path = self.notes / "token"
        if path.is_file() and not path.stat().st_mode & 0o077:
            return path.read_text(encoding="ascii")
        self.notes.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # others could have read it
        token = secrets.token_urlsafe(24)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(token)
        return token

    # --- state ---

    def names(self) -> list[str]:
        return sorted((file.stem for file in self.notes.glob("*.json")), key=lambda name: -self.record(name).started)

    def record(self, name: str) -> Record:
        if not NAME.fullmatch(name) or not self._note(name).is_file():
            raise RunError(f"there is no training called {name[:80]!r}")
        found = json.loads(self._note(name).read_text(encoding="utf-8"))
        return Record(**{**found, "words": tuple(found["words"])})

    def state(self, name: str) -> State:
        record = self.record(name)
        if self._alive(name):
            return "paused" if record.paused else "running"
        if any((self.folder / name / file).is_file() for file in ("model.safetensors", "adapter.safetensors")):
            return "finished"
        return "stopped" if record.stopped else "failed"

    def describe(self, name: str) -> dict[str, Any]:
        record = self.record(name)
        return {
            "name": name,
            "folder": str(self.folder / name),
            "task": record.task,
            "data": record.data,
            "started": record.started,
            "state": self.state(name),
            "steps": self.steps(name),
            "checkpoint": self.checkpoint(name),
            "actions": self.actions(name),
            "left": self.seconds_left(name),
            "why": self.why(name),
        }

    def seconds_left(self, name: str) -> float | None:
        """How long a running training still takes, at the rate of its last steps; None before it has one."""
        file = self.folder / name / "times.jsonl"
        if self.state(name) != "running" or not file.is_file():
            return None
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - TIMES_TAIL))
            lines = opened.read().splitlines()[1 if file.stat().st_size > TIMES_TAIL else 0 :]
        times = [line for line in map(_record, lines) if line]
        steps = times[-1]["step"] - times[0]["step"] if times else 0
        if steps < 1:
            return None
        rate: float = (times[-1]["seconds"] - times[0]["seconds"]) / steps
        return max(0.0, rate * (self.steps(name) - int(times[-1]["step"])))

    def why(self, name: str) -> str:
        """Why a training failed: the last line of its log, without our paths; empty for others."""
        if self.state(name) != "failed":
            return ""
        lines = [line.strip() for line in self.log_tail(name).splitlines() if line.strip()]
        last = lines[-1] if lines else KILLED
        return last.replace(f"{self.notes / 'uploads'}{os.sep}", "")

    def steps(self, name: str) -> int:
        words = [word for word in self.record(name).words if word.startswith("train.max_steps=")]
        if words:
            return int(words[0].partition("=")[2])
        config = (self.folder / name / "config.yaml").read_text(encoding="utf-8")
        found = re.search(r"max_steps: (\d+)", config)
        return int(found[1]) if found else 0

    def checkpoint(self, name: str) -> int | None:
        saved = checkpoints.saved(self.folder / name / "checkpoints")
        return int(saved[0].name.removeprefix("step-")) if saved else None

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """Return every measurement so far; a line that is being written is skipped."""
        self.record(name)
        return list(read_lines(self.folder / name / "metrics.jsonl"))

    def log_tail(self, name: str) -> str:
        self.record(name)
        file = self._log(name)
        return file.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:] if file.is_file() else ""

    def finished(self, name: str) -> Path:
        if (state := self.state(name)) != "finished":
            raise RunError(f"{name} is {state}: its model can be used when it is finished")
        return self.folder / name

    def export(self, name: str, format: str) -> Exported:
        """Write a finished model into `exports/`; what was written before is still the same model."""
        path, out = self.finished(name), self.folder / "exports" / f"{name}-{format}"
        if format in EXPORTS and out.is_dir():
            return Exported(out, {file.name: file.stat().st_size for file in sorted(out.iterdir())})
        return export(format, path, out)

    def attention(self, name: str) -> Path:
        self.record(name)
        return self.folder / name / "attention"

    # --- files to train on ---

    def upload(self, name: str, content: bytes) -> str:
        """Store a file under a safe name that no other file has, and return that name."""
        safe = re.sub(r"[^\w.+,-]+", "-", unicodedata.normalize("NFC", name)).strip("-.")[-60:].lstrip("-.")
        if not any(each.isalnum() for each in safe):
            raise RunError("the file name has no usable characters: rename it with letters and digits")
        folder = self.notes / "uploads"
        folder.mkdir(parents=True, exist_ok=True)
        stem, dot, suffix = safe.partition(".")
        for number in count(1):
            path = folder / (safe if number == 1 else f"{stem}-{number}{dot}{suffix}")
            try:
                with path.open("xb") as file:
                    file.write(content)
                return path.name
            except FileExistsError:
                if path.read_bytes() == content:
                    return path.name
        raise AssertionError("there is always another number")

    def uploads(self) -> list[str]:
        folder = self.notes / "uploads"
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    def uploaded(self, name: str) -> Path:
        if name not in self.uploads():
            raise RunError(f"no file called {name[:80]!r} was uploaded")
        return self.notes / "uploads" / name

    def check_upload(self, name: str, task: str) -> dict[str, Any]:
        """What an uploaded file holds, read as the task would read it, and what looks wrong in it."""
        _refuse_images(task)
        path = self.uploaded(name)
        report = check(path, kind=TASKS[task].data_kind)
        with path.open("rb") as file:
            head = file.read(4000).decode("utf-8", errors="replace").splitlines()[:PREVIEW]
        return _data_document(name, report, head)

    def _kind_setting(self, upload: str, task: str) -> tuple[str, ...]:
        """The kind of data that the task needs, where the file alone does not tell it; refuses a file without it."""
        path, kind = self.uploaded(upload), TASKS[task].data_kind
        check(path, kind=kind)
        try:
            return () if check(path).kind == kind else (f"data.kind={kind}",)
        except ClearheadError:
            return (f"data.kind={kind}",)

    # --- processes ---

    def _launch(self, record: Record) -> None:
        """Start a process in its own session that holds its log locked."""
        self.notes.mkdir(parents=True, exist_ok=True)
        command = [*self.program, *record.words]
        with self._log(record.name).open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._children[record.name] = child
        self._write(replace(record, pid=child.pid))

    def _alive(self, name: str) -> bool:
        """Tell whether a process holds the log locked; reaps our finished child."""
        if child := self._children.get(name):
            child.poll()
        if not self._log(name).is_file():
            return False
        with self._log(name).open("ab") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _require(self, name: str, *states: State) -> Record:
        state = self.state(name)
        if state not in states:
            raise RunError(f"{name} is {state}, not {' or '.join(states)}")
        return self.record(name)

    def _new_name(self, task: str) -> str:
        stem = f"{task}-{time.strftime('%Y%m%d-%H%M%S')}"
        taken = {*self.names(), *(path.name for path in self.folder.glob("*"))}
        names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
        return next(name for name in names if name not in taken)

    def _note(self, name: str) -> Path:
        return self.notes / f"{name}.json"

    def _log(self, name: str) -> Path:
        return self.notes / f"{name}.log"

    def _write(self, record: Record) -> None:
        write_text(self._note(record.name), json.dumps(asdict(record)))


def _data_document(name: str, report: Report, first: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "kind": report.kind,
        "unit": report.unit,
        "train": report.train,
        "validation": report.validation,
        "first": [line[:200] for line in first],
        "faults": [{"what": each.what, "count": each.count, "places": list(each.places)} for each in report.faults],
    }


@cache
def builtin_data(task: str) -> dict[str, Any]:
    """What the built-in data of a task holds, and its first examples."""
    kind = TASKS[task].data_kind
    examples: list[Any] = list(islice(read("builtin", kind=kind).train, PREVIEW))
    if kind == "text":  # blocks of running text
        first = [line for block in examples for line in str(block).splitlines() if line.strip()][:PREVIEW]
    else:
        reader = READERS[kind]()
        rows = [[text for side in reader.texts(each).values() for text in side] for each in examples]
        answers = (getattr(each, "label", "") for each in examples)
        first = [" | ".join(filter(None, (*row, label))) for row, label in zip(rows, answers, strict=True) if row]
    return _data_document("", check("builtin", kind=kind), first)


def _record(line: bytes) -> dict[str, Any] | None:
    """A line of times.jsonl; None for one that is being written."""
    try:
        found = json.loads(line)
        return {"step": int(found["step"]), "seconds": float(found["seconds"])}
    except (ValueError, TypeError, KeyError):
        return None


def _refuse_images(task: str) -> None:
    """An uploaded table of images would name files of this machine."""
    if TASKS[task].predictor.reads == "image":
        raise RunError(f"{task} learns from a folder of images, which cannot be uploaded: use clearhead train")


def _check_settings(settings: Sequence[str]) -> Sequence[str]:
    """Refuse what is not key=value: it would be another argument of the command."""
    for setting in settings:
        if not SETTING.fullmatch(setting):
            raise RunError(f"{setting!r} is not a setting: write key=value, for example model.layers=2")
    return settings


# --- routes ---


def _runs(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


RunsDep = Annotated[Runs, Depends(_runs)]
Name = Annotated[str, Field(max_length=100)]
Size = Literal["tiny", "small", "base"]


class TrainBody(RequestBody):
    """A training to start."""

    task: Annotated[str, Field(max_length=100, description="A name that `/studio/api/tasks` lists.")]
    size: Size = "tiny"
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 300
    upload: Annotated[str | None, Field(description="The name of an uploaded file; default: built-in data.")] = None
    settings: Annotated[list[str], Field(max_length=40, description="Further settings, each key=value.")] = []


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
            "ask": ASKED.get(task.predictor.verb, []),
            "upload": task.predictor.reads != "image",
        }
        for task in found
    ]


@router.get("/tasks/{task}/settings")
def settings(task: Name, size: Size = "tiny") -> Document:
    """What each setting of a task is before the user changes anything: `section.key` and its value."""
    return {name: value for name, value, _ in describe(default_config(TASKS[task].name, size))}


@router.get("/tasks/{task}/data")
def task_data(task: Name) -> Document:
    """What is in the data that comes with the package for a task."""
    return builtin_data(TASKS[task].name)


@router.get("/runs")
def list_runs(runs: RunsDep) -> Document:
    """All trainings, newest first, and the uploaded files."""
    return {"runs": [runs.describe(name) for name in runs.names()], "uploads": runs.uploads()}


@router.post("/runs")
def start(body: TrainBody, runs: RunsDep) -> Document:
    """Start a training."""
    name = runs.start(TASKS[body.task].name, "builtin", body.size, body.steps, body.upload, body.settings)
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
    await add_model(service, name, path)
    return runs.describe(name)


class ExportBody(RequestBody):
    """A format of `clearhead export`."""

    format: Annotated[str, Field(max_length=40)]


@router.get("/exports")
def exports() -> list[str]:
    """The formats in which a model can be taken elsewhere."""
    return list(EXPORTS.names())


@router.post("/runs/{name}/export")
def export_run(name: Name, body: ExportBody, runs: RunsDep) -> Document:
    """Write the model of a finished training for another program, as `clearhead export` does."""
    done = runs.export(name, body.format)
    return {"out": str(done.out), "files": done.files}


@router.post("/runs/{name}/{action}")
def change(name: Name, action: Literal["pause", "resume", "stop", "finish"], runs: RunsDep) -> Document:
    """Pause, resume or stop a training, or make a model of the newest checkpoint of a stopped one."""
    {"pause": runs.pause, "resume": runs.resume, "stop": runs.stop, "finish": runs.finish}[action](name)
    return runs.describe(name)


@router.delete("/runs/{name}")
def delete(name: Name, runs: RunsDep) -> Document:
    """Remove a training that has ended, with its files."""
    runs.delete(name)
    return {"deleted": name}


@router.get("/runs/uploads/{name}/check")
def check_upload(name: Annotated[str, Field(max_length=200)], task: Name, runs: RunsDep) -> Document:
    """What an uploaded file holds, read as a task would read it, and what looks wrong in it."""
    return runs.check_upload(name, TASKS[task].name)


@router.put("/runs/uploads/{name}")
async def upload(name: Annotated[str, Field(max_length=200)], request: Request, runs: RunsDep) -> Document:
    """Store a file to train on; the response has the name under which it is stored."""
    return {"name": runs.upload(Path(name).name, await request.body())}
