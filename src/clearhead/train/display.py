"""Training progress on the screen: a bar on a terminal or in a notebook, a line now and then elsewhere.

Reading the data, training the tokenizer and encoding the texts each have a bar of their own, or a line if they take
more than a moment.

with Display(run) as callbacks:
    run_training(config, run, command, callbacks)
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Timer

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from clearhead.tasks.base.task import Evaluation
from clearhead.train.board import Board
from clearhead.train.loop import Callbacks, Step
from clearhead.train.schedules import Progress

LINE_EVERY = 10.0  # seconds between two lines where there is no terminal
MOMENT = 2.0  # seconds after which a phase gets its line there


def is_main() -> bool:
    """Of the processes that torchrun starts, only the main one prints."""
    return os.environ.get("RANK", "0") == "0"


class Display:
    """A context that gives callbacks which print, log to TensorBoard, and then call `then`."""

    def __init__(self, run: Path, silent: bool = False, then: Callbacks | None = None):
        self.run, self.then = run, then or Callbacks()
        self.screen = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.silent = silent or not is_main()
        self.has_bar = not self.silent and (self.screen.is_terminal or self.screen.is_jupyter)
        self.bar = Bar(
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.description}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.screen,
            disable=not self.has_bar,
        )
        self.last_line = time.monotonic()
        self.training: TaskID | None = None  # its bar, from the first step on
        self.phase: TaskID | None = None  # the bar of what is prepared at the moment
        self.phase_name = ""
        self.timer: Timer | None = None  # for the line of that phase
        self.loss: float | None = None  # moving average
        self.step = 0

    def __enter__(self) -> Callbacks:
        self.bar.start()
        own = Callbacks(self._on_step, self._on_evaluation, self._on_note, self._on_phase, self._on_progress)
        self.board = Board(self.run, own)
        return self.board.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.board.__exit__()
        self.bar.stop()
        if kind is KeyboardInterrupt and not self.silent:
            where = f"after step {self.step:,}, which is saved" if self.step else "before the first step"
            self.screen.print(f"stopped {where}; continue with: clearhead resume {self.run}", soft_wrap=True)

    def _on_step(self, step: Step, progress: Progress) -> None:
        if self.training is None:
            self._end_phase()
            self.training = self.bar.add_task("", total=1.0)
        self.step = step.step
        share = 0.99 * progress.share(step.step)  # the last evaluation is still to come
        self.loss = step.loss if self.loss is None else 0.95 * self.loss + 0.05 * step.loss
        speed = step.tokens / max(step.seconds, 1e-9)
        text = f"step {step.step:,}  loss {self.loss:.3f}  {speed:,.0f} {step.unit}/s"
        self.bar.update(self.training, completed=share, description=text)
        self._print_seldom(f"{share:4.0%}  {text}")
        self.then.on_step(step, progress)

    def _on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        scores = "  ".join(f"{score.name} {score.value:.4g}" for score in evaluation.scores)
        sample = f"\n      {evaluation.sample[:160]!r}" if evaluation.sample else ""
        self._print(f"step {step:,}: validation loss {evaluation.loss:.4f}  {scores}{sample}")
        self.then.on_evaluation(step, evaluation)

    def _on_phase(self, text: str) -> None:
        if self.training is not None:  # an evaluation between two steps
            self.bar.update(self.training, description=text)
        elif text != self.phase_name:
            self._end_phase()
            self.phase, self.phase_name = self.bar.add_task(text, total=None), text
            if not self.has_bar:
                self.timer = Timer(MOMENT, self._print, [text])
                self.timer.daemon = True
                self.timer.start()
        self.then.on_phase(text)

    def _on_progress(self, done: int, total: int | None) -> None:
        if self.phase is not None:
            amount = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            self.bar.update(self.phase, total=total, completed=done, description=f"{self.phase_name}: {amount}")
            self._print_seldom(f"{self.phase_name}: {amount}")
        self.then.on_progress(done, total)

    def _end_phase(self) -> None:
        """Fill the bar of the phase that is over."""
        if self.timer is not None:
            self.timer.cancel()
        if self.phase is not None:
            self.bar.update(self.phase, total=1.0, completed=1.0)
            self.phase, self.phase_name = None, ""

    def _on_note(self, text: str) -> None:
        self._print(text)
        self.then.on_note(text)

    def _print_seldom(self, text: str) -> None:
        """A line every `LINE_EVERY` seconds, where there is no bar."""
        if not self.has_bar and time.monotonic() - self.last_line > LINE_EVERY:
            self.last_line = time.monotonic()
            self._print(text)

    def _print(self, text: str) -> None:
        if not self.silent:
            self.screen.print(text, soft_wrap=True)
