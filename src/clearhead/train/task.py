"""What the loop needs to know of a task: its examples, its batches, its loss, its score.

B examples in a batch, T tokens
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data.batches import Cursor
from clearhead.errors import ConfigError, DataError
from clearhead.run import ModelMeta
from clearhead.text import Tokenizer
from clearhead.train.metrics import Score
from clearhead.train.watch import Example

Batch = dict[str, Tensor]
Examples = NDArray[np.int64]  # what a cursor gives: indices (B,), or windows (B, T)


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on the validation part."""

    loss: float
    scores: tuple[Score, ...] = ()
    sample: str = ""

    def record(self) -> dict[str, Any]:
        """For metrics.jsonl."""
        return {"loss": self.loss, **{score.name: score.value for score in self.scores}, "sample": self.sample}


@dataclass(frozen=True)
class Workspace:
    """What a run gives a task: a folder for files it needs again, and what it has learned of the data already."""

    folder: Path
    tokenizer: Tokenizer | None = None
    meta: ModelMeta | None = None  # of a finished model
    whole: bool = False  # all the data is validation: nothing is learned from it


class Task(ABC):
    """A task on some data; made once, at the start of a run."""

    config: Config
    meta: ModelMeta
    tokenizer: Tokenizer | None = None
    notes: tuple[str, ...] = ()  # what the user should know about the data
    scored: int | None = None  # most validation examples that `scores` looks at; none = all
    beams: int = 1  # hypotheses kept when `scores` writes

    @abstractmethod
    def __init__(self, config: Config, workspace: Workspace):
        """Read the data and make everything ready."""

    def be_thorough(self) -> None:
        """From now on score every validation example, with as wide a beam as is asked for: for the last evaluation."""
        self.scored, self.beams = None, self.config.train.beam

    @abstractmethod
    def cursor(self) -> Cursor:
        """Training batches, epoch after epoch."""

    @abstractmethod
    def batch(self, examples: Examples) -> Batch:
        """The tensors of some training examples."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and of how many tokens or examples it is the sum."""

    def own_words(self, model: nn.Module, batch: Batch, share: float) -> Batch:  # noqa: ARG002 - see Translate
        """The batch with a share of what the model reads taken from what it would say (student forcing)."""
        raise ConfigError(
            f"train.sampling={share:g}: {self.config.task} does not write, so it cannot read its own words"
        )

    @abstractmethod
    def validation(self) -> Iterator[Batch]:
        """The validation part in batches, always the same."""

    def scores(self, model: nn.Module) -> tuple[tuple[Score, ...], str]:  # noqa: ARG002 - a plain loss needs no model
        """What people report for this task, and a sample of the output."""
        return (), ""

    def example(self) -> Example | None:
        """The validation example whose attention is kept at each evaluation; none for models without attention."""
        return None

    def evaluate(self, model: nn.Module, device: torch.device) -> Evaluation:
        """Loss, scores and a sample, on weights as they are."""
        training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                parts = [self.loss(model, to_device(batch, device)) for batch in self.validation()]
                if not parts:
                    raise DataError("leaves no example to validate with", path=self.config.data.path)
                total, count = (float(torch.stack(sums).double().sum()) for sums in zip(*parts, strict=True))
                scores, sample = self.scores(model)
            return Evaluation(total / max(count, 1.0), scores, sample)
        finally:
            model.train(training)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The same tensors where the model is."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
