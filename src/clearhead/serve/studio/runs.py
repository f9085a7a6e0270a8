"""Trainings in processes of their own: `clearhead train` and `clearhead resume`, as anybody would type them.

    RUNS/translate-20260114-101500/        a run directory, as always
    RUNS/.studio/NAME.json                 how it was started, and the process
    RUNS/.studio/NAME.log                  what it said

A training does not need the server: it goes on when the server is killed, and whoever starts a server on the same
folder finds it again. Whether it still runs is known by its log, which it holds locked for as long as it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from clearhead.errors import RunError
from clearhead.train import checkpoints

State = Literal["running", "paused", "stopped", "finished", "failed"]

PROGRAM = (sys.executable, "-m", "clearhead")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
LEAST = 10  # steps between two evaluations, and between two checkpoints
SAID = 4000  # characters of a log that are told


@dataclass(frozen=True)
class Record:
    """How a training was started last."""

    name: str
    task: str
    data: str  # as people call it
    words: tuple[str, ...]  # what `clearhead` was called with
    pid: int
    started: float
    paused: bool = False
    stopped: bool = False  # by somebody, and not by an error


class Runs:
    """The trainings of one folder; `program` is what the words of a training are given to."""

    def __init__(self, folder: Path, program: Sequence[str] = PROGRAM):
        self.folder, self.program = folder, program
        self.notes = folder / ".studio"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, task: str, data: str, size: str, steps: int, upload: str | None = None) -> str:
        """Begin a training, and give its name."""
        name = self._new_name(task)
        often = max(LEAST, steps // 20)
        given = str(self.uploaded(upload)) if upload else data
        settings = (f"train.max_steps={steps}", f"train.evaluate_every={often}", f"train.checkpoint_every={often}")
        words = ("train", task, "--data", given, "--size", size, "--out", str(self.folder / name), *settings)
        self._launch(Record(name, task, upload or data, words, 0, time.time()))
        return name

    def resume(self, name: str) -> None:
        """Go on: a paused training at once, a stopped one from its newest checkpoint."""
        record, state = self.record(name), self.state(name)
        if state == "paused":
            os.kill(record.pid, signal.SIGCONT)
            self._write(replace(record, paused=False))
        elif state in ("stopped", "failed"):
            whole = (self.folder / name / "config.yaml").is_file()
            words = ("resume", str(self.folder / name)) if whole else record.words
            self._launch(replace(record, words=words, paused=False, stopped=False))
        else:
            raise RunError(f"{name} is {state}: only what is paused, stopped or failed can go on")

    def pause(self, name: str) -> None:
        """Hold it where it is; nothing is lost, and the machine is free."""
        record = self._going(name, "running")
        os.kill(record.pid, signal.SIGSTOP)
        self._write(replace(record, paused=True))

    def stop(self, name: str) -> None:
        """End it; its newest checkpoint stays, and from there it can go on."""
        record = self._going(name, "running", "paused")
        self._write(replace(record, paused=False, stopped=True))
        os.kill(record.pid, signal.SIGTERM)
        os.kill(record.pid, signal.SIGCONT)  # what is paused has to hear it

    # --- what is known ---

    def names(self) -> list[str]:
        """All trainings, the newest first."""
        return sorted((file.stem for file in self.notes.glob("*.json")), key=lambda name: -self.record(name).started)

    def record(self, name: str) -> Record:
        """How a training was started."""
        if not NAME.fullmatch(name) or not self._note(name).is_file():
            raise RunError(f"there is no training called {name[:80]!r}")
        found = json.loads(self._note(name).read_text(encoding="utf-8"))
        return Record(**{**found, "words": tuple(found["words"])})

    def state(self, name: str) -> State:
        """What a training is doing."""
        record = self.record(name)
        if self._alive(name):
            return "paused" if record.paused else "running"
        if (self.folder / name / "model.safetensors").is_file():
            return "finished"
        return "stopped" if record.stopped else "failed"

    def describe(self, name: str) -> dict[str, Any]:
        """A line of the list."""
        record = self.record(name)
        return {
            "name": name,
            "task": record.task,
            "data": record.data,
            "started": record.started,
            "state": self.state(name),
            "steps": self.steps(name),
            "checkpoint": self.checkpoint(name),
        }

    def steps(self, name: str) -> int:
        """How many steps it is to make."""
        words = [word for word in self.record(name).words if word.startswith("train.max_steps=")]
        if words:
            return int(words[0].partition("=")[2])
        config = (self.folder / name / "config.yaml").read_text(encoding="utf-8")
        found = re.search(r"max_steps: (\d+)", config)
        return int(found[1]) if found else 0

    def checkpoint(self, name: str) -> int | None:
        """The step of the newest checkpoint: what no accident can take away."""
        saved = checkpoints.saved(self.folder / name / "checkpoints")
        return int(saved[0].name.removeprefix("step-")) if saved else None

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """Every measurement so far; a line that is being written is left for later."""
        self.record(name)
        file = self.folder / name / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        return list(_whole(lines))

    def said(self, name: str) -> str:
        """The end of its log."""
        self.record(name)
        file = self._log(name)
        return file.read_text(encoding="utf-8", errors="replace")[-SAID:] if file.is_file() else ""

    def finished(self, name: str) -> Path:
        """The run directory of a training that has come to its end."""
        if (state := self.state(name)) != "finished":
            raise RunError(f"{name} is {state}: its model can be used when it is finished")
        return self.folder / name

    def attention(self, name: str) -> Path:
        """Where the attention of the fixed example is kept."""
        self.record(name)
        return self.folder / name / "attention"

    # --- files to train on ---

    def upload(self, name: str, content: bytes) -> str:
        """Keep a file of the user's under a harmless name, and give that."""
        kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-60:]
        if not kept or not NAME.fullmatch(kept):
            raise RunError("the file has no name that can be kept: give it one of letters and digits")
        place = self.notes / "uploads"
        place.mkdir(parents=True, exist_ok=True)
        (place / kept).write_bytes(content)
        return kept

    def uploads(self) -> list[str]:
        """The names of the files that were uploaded."""
        place = self.notes / "uploads"
        return sorted(file.name for file in place.iterdir()) if place.is_dir() else []

    def uploaded(self, name: str) -> Path:
        """The file of a name."""
        if name not in self.uploads():
            raise RunError(f"no file called {name[:80]!r} was uploaded")
        return self.notes / "uploads" / name

    # --- processes ---

    def _launch(self, record: Record) -> None:
        """Start a process that holds its log locked and belongs to nobody's terminal."""
        self.notes.mkdir(parents=True, exist_ok=True)
        command = [*self.program, *record.words]
        with self._log(record.name).open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._children[record.name] = child
        self._write(replace(record, pid=child.pid))

    def _alive(self, name: str) -> bool:
        """Whether somebody holds the log; a child of ours that has ended is laid to rest."""
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

    def _going(self, name: str, *states: State) -> Record:
        state = self.state(name)
        if state not in states:
            raise RunError(f"{name} is {state}, and not {' or '.join(states)}")
        return self.record(name)

    def _new_name(self, task: str) -> str:
        stem = f"{task}-{time.strftime('%Y%m%d-%H%M%S')}"
        taken = {*self.names(), *(path.name for path in self.folder.glob("*"))}
        return next(name for name in _numbered(stem) if name not in taken)

    def _note(self, name: str) -> Path:
        return self.notes / f"{name}.json"

    def _log(self, name: str) -> Path:
        return self.notes / f"{name}.log"

    def _write(self, record: Record) -> None:
        """Whoever looks sees the old record or the new one."""
        fresh = self.notes / f".{record.name}.part"
        fresh.write_text(json.dumps(asdict(record)), encoding="utf-8")
        fresh.replace(self._note(record.name))


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    for number in range(2, 1000):
        yield f"{stem}-{number}"


def _whole(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)
