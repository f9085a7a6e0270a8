"""`clearhead train TASK --data PATH` or `clearhead train RECIPE.yaml`; `clearhead resume RUN`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.eval import print_scores
from clearhead.cli.output import Json, console, print_json

if TYPE_CHECKING:
    from clearhead.config import AnyConfig
    from clearhead.tasks.base.task import Evaluation
    from clearhead.train.board import Board
    from clearhead.train.loop import Listener, Step
    from clearhead.train.schedules import Progress


def train(
    what: Annotated[str, typer.Argument(help="translate, lm, classify, tag, vision, caption, or a RECIPE.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings: section.key=value …")] = None,
    data: Annotated[str | None, typer.Option(help="File, folder, `a,b`, or builtin.")] = None,
    size: Annotated[str, typer.Option(help="tiny, small or base.")] = "small",
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/TASK-TIME unless said.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on your own data."""
    from clearhead.tasks import default_config, load_config, override_config

    is_recipe = what.endswith((".yaml", ".yml"))
    config = load_config(what) if is_recipe else default_config(what, size)
    words = ([f"data.path={data}"] if data is not None else []) + (overrides or [])
    config = override_config(config, words)
    if dry_run:
        _estimate(config, as_json)
        return
    place = out or Path("runs") / f"{config.task}-{time.strftime('%Y%m%d-%H%M%S')}"
    command = "clearhead " + " ".join(shlex.quote(word) for word in sys.argv[1:])
    _begin(config, place, command, as_json)


def _begin(config: AnyConfig, out: Path, command: str, as_json: bool) -> None:
    from clearhead.train.start import begin

    with Display(silent=as_json) as display, display.listening(out) as listener:
        found = begin(config, out, command, listener)
    report(out, found, as_json)


def _estimate(config: AnyConfig, as_json: bool) -> None:
    from clearhead.train.dry_run import estimate

    found = estimate(config, lambda text: None if as_json else console(stderr=True).print(text, soft_wrap=True))
    total, memory = sum(found.parameters.values()), sum(found.memory.values())
    if as_json:
        totals = {"total_parameters": total, "total_memory": memory, "minutes": found.minutes}
        print_json({"task": config.task, **asdict(found), **totals})
        return
    rows = [("parameters", f"{total:,}")]
    rows += [(f"  {part}", f"{count:,}") for part, count in found.parameters.items()]
    rows += [("memory", _megabytes(memory))]
    rows += [(f"  {part}", _megabytes(size)) for part, size in found.memory.items()]
    rows += [
        ("steps", f"{found.steps:,}"),
        (f"{found.unit} per step", f"{found.per_step:,.0f}"),
        ("time per step", f"{1000 * found.seconds_per_step:,.0f} ms"),
        ("time", f"about {_duration(found.minutes)}, without the evaluations"),
    ]
    width = 2 + max(len(name) for name, _ in rows)
    for name, value in rows:
        console().print(f"{name:<{width}}{value}", soft_wrap=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _duration(minutes: float) -> str:
    if minutes < 2:
        return f"{60 * minutes:.0f} seconds"
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def resume(
    run: Annotated[Path, typer.Argument(help="The run directory of an interrupted training.")],
    as_json: Json = False,
) -> None:
    """Go on with an interrupted training, bit for bit."""
    from clearhead.train.start import resume as go_on

    with Display(silent=as_json) as display, display.listening(run) as listener:
        found = go_on(run, listener)
    report(run, found, as_json)


def leads() -> bool:
    """Whether this process is the one that speaks: of those that torchrun starts, the first."""
    return os.environ.get("RANK", "0") == "0"


def report(out: Path, found: Evaluation, as_json: bool) -> None:
    """Say how it went, and what to type next."""
    if not leads():
        return
    if as_json:
        print_json({"run": str(out), **found.record()})
        return
    print_scores(found)
    console().print(f"\nThe model is in {out}; its card is {out / 'card.md'}.", soft_wrap=True)


class Display:
    """Progress with loss, rate and time left: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, silent: bool):
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.screen = console(stderr=True)
        self.silent = silent or not leads()
        self.bar = Progress(
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.description}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.screen,
            disable=self.silent or not self.screen.is_terminal,
        )
        self.spoken = time.monotonic()
        self.loss: float | None = None
        self.run: Path | None = None

    def __enter__(self) -> Display:
        self.bar.start()
        self.whole = self.bar.add_task("getting ready", total=1.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt and self.run is not None:
            self.screen.print(f"stopped; go on with: clearhead resume {self.run}", soft_wrap=True)

    def saying_how_to_resume(self, run: Path) -> None:
        """Where to go on, should it be interrupted."""
        self.run = run

    def listener(self) -> Listener:
        """What the loop tells us."""
        from clearhead.train.loop import Listener

        return Listener(self._step, self._evaluation, self._note)

    def listening(self, run: Path) -> Board:
        """What the loop of this run tells us, and TensorBoard too."""
        from clearhead.train.board import Board

        self.saying_how_to_resume(run)
        return Board(run, self.listener())

    def _step(self, step: Step, progress: Progress) -> None:
        share = progress.share(step.step)
        self.loss = step.loss if self.loss is None else 0.95 * self.loss + 0.05 * step.loss
        rate = step.tokens / max(step.seconds, 1e-9)
        text = f"step {step.step:,}  loss {self.loss:.3f}  {rate:,.0f} tokens/s"
        self.bar.update(self.whole, completed=share, description=text)
        if not self.silent and not self.screen.is_terminal and time.monotonic() - self.spoken > 10:
            self.spoken = time.monotonic()
            self.screen.print(f"{share:4.0%}  {text}")

    def _evaluation(self, step: int, found: Evaluation) -> None:
        scores = "  ".join(f"{score.name} {score.value:.4g}" for score in found.scores)
        sample = f"\n      {found.sample[:160]!r}" if found.sample else ""
        self._note(f"step {step:,}: validation loss {found.loss:.4f}  {scores}{sample}")

    def _note(self, text: str) -> None:
        if not self.silent:
            self.screen.print(text, soft_wrap=True)
