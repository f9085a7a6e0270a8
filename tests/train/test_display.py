"""What is on the screen while a model is prepared and trained, and what boards are given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import clearhead
from clearhead.errors import ConfigError
from clearhead.run import Run
from clearhead.tasks import default_config
from clearhead.tasks.base.task import Workspace
from clearhead.train import board, display
from clearhead.train.display import Display
from clearhead.train.loop import Callbacks, Step
from clearhead.train.schedules import Progress

LABELLED = [(f"{'good' if i % 2 else 'bad'} film {i}", "pos" if i % 2 else "neg") for i in range(37)]
TINY = {"model.dim": 16, "model.heads": 2, "model.layers": 1, "train.max_steps": 3}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Overdue:
    """A timer whose time is over at once."""

    def __init__(self, _seconds: float, call: Callable[[str], None], arguments: list[str]):
        self.call, self.arguments = call, arguments

    def start(self) -> None:
        self.call(*self.arguments)

    def cancel(self) -> None:
        """It is too late."""


def test_each_phase_is_a_line_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(board, "find_spec", lambda _name: None)
    phases = ["reading the data", "training the tokenizer", "encoding the texts", "building the model"]

    def lines(out: str) -> list[str]:
        clearhead.train("classify", data=LABELLED, out=out, **TINY)
        return [line for line in capsys.readouterr().err.splitlines() if line in (*phases, "evaluating")]

    monkeypatch.setattr(display, "MOMENT", 99.0)
    assert lines("fast") == []
    monkeypatch.setattr(display, "Timer", Overdue)
    assert lines("slow") == phases


def test_images_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "find_spec", lambda _name: None)
    data = [(np.full((8, 8, 3), 9 * i, np.uint8), "dark" if i < 13 else "light") for i in range(23)]
    seen: list[tuple[int, int | None]] = []
    told = Callbacks(on_progress=lambda done, total: seen.append((done, total)))
    parts = {"train": data[::2], "validation": data[1::2]}
    clearhead.train("vision", data=parts, out="run", callbacks=told, progress=False, **TINY)
    assert seen == [(12, 12), (11, 11)]


def test_items_are_counted_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int | None]] = []
    workspace = Workspace(Path(), on_progress=lambda done, total: seen.append((done, total)))
    times = iter(range(0, 99))
    clock = SimpleNamespace(monotonic=lambda: 0.03 * next(times))
    monkeypatch.setattr("clearhead.tasks.base.task.time", clock)  # of no other module
    assert list(workspace.counted("abcdefg", 7)) == list("abcdefg")
    assert seen[-1] == (7, 7)
    assert 1 < len(seen) < 7
    seen.clear()
    assert list(workspace.counted([])) == []
    assert seen == [(0, None)]


def screen(monkeypatch: pytest.MonkeyPatch) -> Display:
    """A display on a terminal."""
    terminal = Console(force_terminal=True, width=120, file=sys.stderr)
    monkeypatch.setattr(display, "Console", lambda **_: terminal)
    return Display(Path("run"))


def test_each_phase_has_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(board, "open_writer", lambda _run, _step: None)
    shown = screen(monkeypatch)
    with shown as told:
        told.on_phase("reading the data")
        told.on_phase("loading the images")
        told.on_progress(3, 7)
        assert shown.bar.tasks[1].percentage == pytest.approx(100 * 3 / 7)
        told.on_phase("building the model")
        told.on_step(Step(1, 2.5, 1.0, 8, 0.5), Progress(2, None))
        told.on_phase("evaluating")
    bars = [(task.description, round(task.percentage)) for task in shown.bar.tasks]
    done = [("reading the data", 100), ("loading the images: 3 of 7", 100), ("building the model", 100)]
    assert bars == [*done, ("evaluating", 50)]
    printed = capsys.readouterr().err
    assert "loading the images: 3 of 7" in printed
    assert "evaluating" in printed


# --- boards ---


class FakeRun:
    """What `wandb.init` returns."""

    def __init__(self, **given: Any):
        self.given, self.logged, self.finished = given, list[tuple[int, dict[str, float]]](), False

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.logged.append((step, numbers))

    def finish(self) -> None:
        self.finished = True


def test_weights_and_biases_get_the_curves_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[FakeRun] = []

    def init(**given: Any) -> FakeRun:
        runs.append(FakeRun(**given))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setattr(board, "find_spec", lambda name: object() if name == "wandb" else None)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    clearhead.train("classify", data=LABELLED, out="run", progress=False, board="wandb", **TINY)
    (run,) = runs
    assert (run.given["mode"], run.given["dir"], run.given["name"]) == ("offline", "run", "run")
    assert run.given["config"]["train"]["max_steps"] == 3
    assert [step for step, numbers in run.logged if "loss/train" in numbers] == [1, 2, 3]
    assert {"loss/validation", "score/accuracy"} <= run.logged[-1][1].keys()
    assert run.finished
    assert not Path("run/events").exists()


def test_real_weights_and_biases_write_files() -> None:
    pytest.importorskip("wandb")
    clearhead.train("classify", data=LABELLED, out="run", progress=False, board="wandb", **TINY)
    assert list(Path("run/wandb").glob("offline-run-*/*.wandb"))


def test_a_board_that_is_not_installed_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "find_spec", lambda _name: None)
    for name, package in (("wandb", "wandb"), ("tensorboard", r"clearhead\[board\]")):
        with pytest.raises(ConfigError, match=rf"^train\.board={name} needs a package: pip install '{package}'$"):
            clearhead.train("classify", data=LABELLED, out="run", progress=False, board=name, **TINY)
        assert not Path("run").exists()


def test_no_board_is_no_board() -> None:
    clearhead.train("classify", data=LABELLED, out="run", progress=False, board="none", **TINY)
    assert not Path("run/events").exists()


@pytest.mark.parametrize(("steps", "where"), [(0, "before the first step"), (1234, "after step 1,234, which is saved")])
def test_who_interrupts_is_told_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steps: int, where: str
) -> None:
    monkeypatch.setattr(board, "find_spec", lambda _name: None)

    Run.create(Path("run"), default_config("classify"))

    def train(silent: bool) -> None:
        with Display(Path("run"), silent=silent) as callbacks:
            if steps:
                callbacks.on_step(Step(steps, 2.5, 0.1, 100, 0.5), Progress(5000, None))
            raise KeyboardInterrupt

    def interrupted(silent: bool) -> str:
        with pytest.raises(KeyboardInterrupt):
            train(silent)
        return capsys.readouterr().err

    assert f"stopped {where}; continue with: clearhead resume run\n" in interrupted(silent=False)
    assert interrupted(silent=True) == ""
