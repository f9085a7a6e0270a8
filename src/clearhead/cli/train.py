"""`clearhead train TASK --data PATH`, `clearhead train RECIPE.yaml`, and `clearhead resume RUN`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.common import Json, console, print_json
from clearhead.cli.eval import print_scores
from clearhead.tasks import TASKS

if TYPE_CHECKING:
    from clearhead.config import AnyConfig
    from clearhead.tasks.base.task import Evaluation
    from clearhead.train.board import Board
    from clearhead.train.loop import Callbacks, Step
    from clearhead.train.schedules import Progress


def train(
    what: Annotated[
        str,
        typer.Argument(help=f"Task ({', '.join(TASKS.builtin())}), or the path of a RECIPE.yaml."),
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change: section.key=value …")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Training data: a file, a folder, two files FILE,FILE, a dataset's name, or builtin."),
    ] = None,
    size: Annotated[str, typer.Option(help="Model size: tiny, small or base.")] = "small",
    out: Annotated[Path | None, typer.Option(help="Run directory to create.  [default: runs/TASK-TIME]")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print parameters, memory and time, and train nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model on your own data."""
    from clearhead.tasks import default_config, load_config, override_config

    is_recipe = what.endswith((".yaml", ".yml"))
    config = load_config(what) if is_recipe else default_config(what, size)
    changes = ([f"data.path={data}"] if data is not None else []) + (overrides or [])
    config = override_config(config, changes)
    if dry_run:
        _print_estimate(config, as_json)
        return
    from clearhead.train.start import run_training

    run = out or Path("runs") / f"{config.task}-{time.strftime('%Y%m%d-%H%M%S')}"
    command = "clearhead " + " ".join(shlex.quote(word) for word in sys.argv[1:])
    with Display(silent=as_json) as display, display.with_tensorboard(run) as callbacks:
        evaluation = run_training(config, run, command, callbacks)
    _report(run, evaluation, as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="Run directory of an interrupted training.")],
    as_json: Json = False,
) -> None:
    """Continue an interrupted training, bit for bit."""
    from clearhead.train import start

    with Display(silent=as_json) as display, display.with_tensorboard(run) as callbacks:
        evaluation = start.resume(run, callbacks)
    _report(run, evaluation, as_json)


def _report(run: Path, evaluation: Evaluation, as_json: bool) -> None:
    """Print the final scores and where the model is."""
    if not _is_main():
        return
    if as_json:
        print_json({"run": str(run), **evaluation.record()})
        return
    print_scores(evaluation)
    console().print(f"\nThe model is in {run}; its card is {run / 'card.md'}.", soft_wrap=True)


def _is_main() -> bool:
    """Of the processes that torchrun starts, only the main one prints."""
    return os.environ.get("RANK", "0") == "0"


def _print_estimate(config: AnyConfig, as_json: bool) -> None:
    from clearhead.train.dry_run import estimate

    found = estimate(config, lambda text: None if as_json else console(stderr=True).print(text, soft_wrap=True))
    total, memory = sum(found.parameters.values()), sum(found.memory.values())
    if as_json:
        totals = {"total_parameters": total, "total_memory": memory, "minutes": found.minutes}
        print_json({"task": config.task, **asdict(found), **totals})
        return
    rows = [
        ("parameters", f"{total:,}"),
        *((f"  {part}", f"{count:,}") for part, count in found.parameters.items()),
        ("memory", f"{memory / 1e6:,.1f} MB"),
        *((f"  {part}", f"{size / 1e6:,.1f} MB") for part, size in found.memory.items()),
        ("steps", f"{found.steps:,}"),
        (f"{found.unit} per step", f"{found.per_step:,.0f}"),
        ("time per step", f"{1000 * found.seconds_per_step:,.0f} ms"),
        ("time", f"about {_duration(found.minutes)}, without the evaluations"),
    ]
    width = 2 + max(len(name) for name, _ in rows)
    for name, value in rows:
        console().print(f"{name:<{width}}{value}", soft_wrap=True)


def _duration(minutes: float) -> str:
    if minutes < 2:
        return f"{60 * minutes:.0f} seconds"
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


class Display:
    """Training progress with loss, speed and time left: a bar on a terminal, a line every 10 seconds elsewhere."""

    def __init__(self, silent: bool):
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.screen = console(stderr=True)
        self.silent = silent or not _is_main()
        self.bar = Progress(
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.description}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.screen,
            disable=self.silent or not self.screen.is_terminal,
        )
        self.last_line = time.monotonic()
        self.loss: float | None = None  # moving average
        self.run: Path | None = None  # named in the message after Ctrl-C

    def __enter__(self) -> Display:
        self.bar.start()
        self.training = self.bar.add_task("preparing", total=1.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt and self.run is not None:
            self.screen.print(f"stopped; continue with: clearhead resume {self.run}", soft_wrap=True)

    def callbacks(self, run: Path) -> Callbacks:
        from clearhead.train.loop import Callbacks

        self.run = run
        return Callbacks(self._on_step, self._on_evaluation, self._on_note)

    def with_tensorboard(self, run: Path) -> Board:
        from clearhead.train.board import Board

        return Board(run, self.callbacks(run))

    def _on_step(self, step: Step, progress: Progress) -> None:
        share = progress.share(step.step)
        self.loss = step.loss if self.loss is None else 0.95 * self.loss + 0.05 * step.loss
        speed = step.tokens / max(step.seconds, 1e-9)
        text = f"step {step.step:,}  loss {self.loss:.3f}  {speed:,.0f} tokens/s"
        self.bar.update(self.training, completed=share, description=text)
        if not self.silent and not self.screen.is_terminal and time.monotonic() - self.last_line > 10:
            self.last_line = time.monotonic()
            self.screen.print(f"{share:4.0%}  {text}")

    def _on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        scores = "  ".join(f"{score.name} {score.value:.4g}" for score in evaluation.scores)
        sample = f"\n      {evaluation.sample[:160]!r}" if evaluation.sample else ""
        self._on_note(f"step {step:,}: validation loss {evaluation.loss:.4f}  {scores}{sample}")

    def _on_note(self, text: str) -> None:
        if not self.silent:
            self.screen.print(text, soft_wrap=True)
