"""TensorBoard events in RUN/events if the tensorboard package is installed: `tensorboard --logdir RUN/events`."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clearhead.tasks.base.task import Evaluation
from clearhead.train.loop import Callbacks, Step
from clearhead.train.schedules import Progress


class Board:
    """Callbacks that also log to TensorBoard.

    The writer is opened at the first number: TensorBoard is slow to import, and a run that fails early leaves no files.
    """

    def __init__(self, run: Path, callbacks: Callbacks):
        self.folder = run / "events"
        self.inner = callbacks
        self.installed = find_spec("tensorboard") is not None
        self.writer: Any = None

    def __enter__(self) -> Callbacks:
        return replace(self.inner, on_step=self._on_step, on_evaluation=self._on_evaluation)

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def _on_step(self, step: Step, progress: Progress) -> None:
        speed = step.tokens / max(step.seconds, 1e-9)
        self._write(step.step, {"loss/train": step.loss, "rate": step.rate, f"{step.unit} per second": speed})
        self.inner.on_step(step, progress)

    def _on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        scores = {f"score/{score.name}": score.value for score in evaluation.scores}
        self._write(step, {"loss/validation": evaluation.loss, **scores})
        self.inner.on_evaluation(step, evaluation)

    def _write(self, step: int, numbers: dict[str, float]) -> None:
        if not self.installed:
            return
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Steps that an interrupted run logged after its last checkpoint are logged again.
            self.writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)
