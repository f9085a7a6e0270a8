"""Training curves for other programs: TensorBoard events in RUN/events, or Weights & Biases files in RUN/wandb.

train.board=auto           TensorBoard if it is installed: `tensorboard --logdir RUN/events`
train.board=wandb          offline; `wandb sync RUN/wandb/offline-run-…` uploads them
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from clearhead.config import TrainConfig
from clearhead.errors import ConfigError
from clearhead.run import Run
from clearhead.tasks import run_config
from clearhead.tasks.base.task import Evaluation
from clearhead.train.loop import Callbacks, Step
from clearhead.train.schedules import Progress

PACKAGES = {"tensorboard": "clearhead[board]", "wandb": "wandb"}  # and what to install for them


class Writer(Protocol):
    """What logs numbers."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Events in RUN/events."""

    def __init__(self, run: Path, step: int):
        from torch.utils.tensorboard import SummaryWriter

        # Steps that an interrupted run logged after its last checkpoint are logged again.
        self.writer = SummaryWriter(str(run / "events"), purge_step=step)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """Files in RUN/wandb; nothing is sent unless $WANDB_MODE asks for it."""

    def __init__(self, run: Path, _step: int):
        mode, config = os.environ.get("WANDB_MODE", "offline"), run_config(Run(run)).model_dump(mode="json")
        # The name of the run is its id, so that a resumed training goes on in the same curves.
        self.run: Any = import_module("wandb").init(
            project="clearhead", name=run.name, id=run.name, dir=str(run), mode=mode, resume="allow", config=config
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        self.run.finish()


def check_board(config: TrainConfig) -> None:
    """Refuse a board that is not installed, before anything is trained."""
    if config.board in PACKAGES and find_spec(config.board) is None:
        raise ConfigError(f"train.board={config.board} needs a package: pip install '{PACKAGES[config.board]}'")


class Board:
    """Callbacks that also log to the board of a run's configuration.

    The writer is opened at the first number: it is slow to import, and a run that fails early leaves no files.
    """

    def __init__(self, run: Path, callbacks: Callbacks):
        self.run, self.inner = run, callbacks
        self.opened = False
        self.writer: Writer | None = None

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

    def _write(self, step: int, numbers: Mapping[str, float]) -> None:
        if not self.opened:
            self.opened, self.writer = True, open_writer(self.run, step)
        if self.writer is not None:
            self.writer.write(step, numbers)


def open_writer(run: Path, step: int) -> Writer | None:
    """The writer that a run's configuration chooses; None for none."""
    board = run_config(Run(run)).train.board
    if board == "wandb":
        return WeightsAndBiases(run, step)
    if board == "tensorboard" or (board == "auto" and find_spec("tensorboard") is not None):
        return TensorBoard(run, step)
    return None
