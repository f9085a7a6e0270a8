"""TensorBoard events beside metrics.jsonl, where the tensorboard package is installed; elsewhere nothing happens.

tensorboard --logdir RUN/events
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clearhead.tasks.base.task import Evaluation
from clearhead.train.loop import Listener, Step
from clearhead.train.schedules import Progress


class Board:
    """Passes on what a listener is told, and writes its numbers to RUN/events.

    The writer is opened at the first number: TensorBoard is slow to import, and a run that never begins leaves nothing.
    """

    def __init__(self, run: Path, listener: Listener):
        self.folder = run / "events"
        self.inner = listener
        self.installed = find_spec("tensorboard") is not None
        self.writer: Any = None

    def __enter__(self) -> Listener:
        return Listener(self._step, self._evaluation, self.inner.on_note)

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def _step(self, step: Step, progress: Progress) -> None:
        self._write(step.step, {"loss/train": step.loss, "rate": step.rate, "tokens per second": _rate(step)})
        self.inner.on_step(step, progress)

    def _evaluation(self, step: int, found: Evaluation) -> None:
        scores = {f"score/{score.name}": score.value for score in found.scores}
        self._write(step, {"loss/validation": found.loss, **scores})
        self.inner.on_evaluation(step, found)

    def _write(self, step: int, numbers: dict[str, float]) -> None:
        if not self.installed:
            return
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # What an interrupted run wrote from this step on is written again.
            self.writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)


def _rate(step: Step) -> float:
    return step.tokens / max(step.seconds, 1e-9)
