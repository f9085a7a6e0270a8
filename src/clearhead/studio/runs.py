"""Trainings as separate processes: `clearhead train` and `clearhead resume`, as a user would type them.

    RUNS/translate-20260114-101500/        the run directory
    RUNS/.studio/NAME.json                 how it was started, and its process id
    RUNS/.studio/NAME.log                  its output
    RUNS/.studio/uploads/                  uploaded files

A training does not need the server: it continues when the server is killed, and a server that is started on the same
folder finds it again. A training holds its log locked while it runs; that is how its state is known.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from clearhead.errors import RunError
from clearhead.files import read_lines, write_text
from clearhead.train import checkpoints

State = Literal["running", "paused", "stopped", "finished", "failed"]

PROGRAM = (sys.executable, "-m", "clearhead")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
MIN_INTERVAL = 10  # steps between two evaluations, and between two checkpoints
LOG_TAIL = 4000  # characters of a log that are shown


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

    def start(self, task: str, data: str, size: str, steps: int, upload: str | None = None) -> str:
        """Start a training and return its name."""
        name = self._new_name(task)
        interval = max(MIN_INTERVAL, steps // 20)
        source = str(self.uploaded(upload)) if upload else data
        settings = (
            f"train.max_steps={steps}",
            f"train.evaluate_every={interval}",
            f"train.checkpoint_every={interval}",
        )
        words = ("train", task, "--data", source, "--size", size, "--out", str(self.folder / name), *settings)
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

    # --- state ---

    def names(self) -> list[str]:
        """Return the names of all trainings, newest first."""
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
        if (self.folder / name / "model.safetensors").is_file():
            return "finished"
        return "stopped" if record.stopped else "failed"

    def describe(self, name: str) -> dict[str, Any]:
        """Return what the list of trainings shows."""
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
        """Return the number of steps that it will make."""
        words = [word for word in self.record(name).words if word.startswith("train.max_steps=")]
        if words:
            return int(words[0].partition("=")[2])
        config = (self.folder / name / "config.yaml").read_text(encoding="utf-8")
        found = re.search(r"max_steps: (\d+)", config)
        return int(found[1]) if found else 0

    def checkpoint(self, name: str) -> int | None:
        """Return the step of the newest checkpoint."""
        saved = checkpoints.saved(self.folder / name / "checkpoints")
        return int(saved[0].name.removeprefix("step-")) if saved else None

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """Return every measurement so far; a line that is being written is skipped."""
        self.record(name)
        return list(read_lines(self.folder / name / "metrics.jsonl"))

    def log_tail(self, name: str) -> str:
        """Return the end of its log."""
        self.record(name)
        file = self._log(name)
        return file.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:] if file.is_file() else ""

    def finished(self, name: str) -> Path:
        """Return the run directory of a finished training."""
        if (state := self.state(name)) != "finished":
            raise RunError(f"{name} is {state}: its model can be used when it is finished")
        return self.folder / name

    def attention(self, name: str) -> Path:
        """Return the folder with the attention of the fixed example."""
        self.record(name)
        return self.folder / name / "attention"

    # --- files to train on ---

    def upload(self, name: str, content: bytes) -> str:
        """Store a file under a safe name, and return that name."""
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-60:]
        if not safe or not NAME.fullmatch(safe):
            raise RunError("the file name has no usable characters: rename it with letters and digits")
        folder = self.notes / "uploads"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / safe).write_bytes(content)
        return safe

    def uploads(self) -> list[str]:
        folder = self.notes / "uploads"
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    def uploaded(self, name: str) -> Path:
        """Return the path of an uploaded file."""
        if name not in self.uploads():
            raise RunError(f"no file called {name[:80]!r} was uploaded")
        return self.notes / "uploads" / name

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
        return next(name for name in _numbered(stem) if name not in taken)

    def _note(self, name: str) -> Path:
        return self.notes / f"{name}.json"

    def _log(self, name: str) -> Path:
        return self.notes / f"{name}.log"

    def _write(self, record: Record) -> None:
        write_text(self._note(record.name), json.dumps(asdict(record)))


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    for number in range(2, 1000):
        yield f"{stem}-{number}"
