"""A task from outside the package: sort digits. Every position predicts the digit that stands there after sorting.

    CLEARHEAD_PLUGINS=task_plugin.py clearhead train sort --data numbers.txt --size tiny --out runs/sort
    CLEARHEAD_PLUGINS=task_plugin.py clearhead sort runs/sort "31415"

B lists, T digits
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.config import AnyConfig
from clearhead.data.batches import Batches
from clearhead.errors import DataError
from clearhead.look.inputs import PreparedInput
from clearhead.models.classifier import Tagger
from clearhead.models.config import ModelConfig
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.losses import IGNORE_INDEX, token_loss
from clearhead.tasks.base.metrics import Score, exact_match
from clearhead.tasks.base.predictor import Predictor
from clearhead.tasks.base.task import Batch, Examples, Task, Workspace, device_of, read_dataset

PAD = 10  # after the ten digits


class SortModel(ModelConfig):
    """The model section of the configuration: an encoder, with nothing of its own."""


class Sort(Task[SortModel]):
    """Lines of digits, all equally long."""

    name = "sort"
    title = "A sorter of digits"
    data_kind = "text"
    model_type = SortModel
    takes_word_vectors = False

    @classmethod
    def build(cls, model: SortModel, sizes: Sizes) -> nn.Module:
        return Tagger(model, sizes.vocabulary, sizes.classes, sizes.pad)

    def __init__(self, config: AnyConfig[SortModel], workspace: Workspace):
        dataset = read_dataset(config, "text", workspace)
        self.config = config
        self.train, self.held_out = (self.digits("".join(part)) for part in (dataset.train, dataset.validation))
        self.meta = ModelMeta(Sizes(vocabulary=11, classes=10, pad=PAD), labels=tuple("0123456789"))

    def digits(self, text: str) -> Tensor:
        """(N, T): the lines that are as long as the first."""
        lines = [line.strip() for line in text.splitlines() if line.strip().isdecimal()]
        if not lines:
            raise DataError("has no line of digits", path=self.config.data.path)
        return torch.tensor([[int(digit) for digit in line] for line in lines if len(line) == len(lines[0])])

    def cursor(self) -> Batches:
        lengths = np.full(len(self.train), self.train.size(1))
        return Batches(lengths, budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        return {"ids": self.train[examples]}

    def validation(self) -> Iterator[Batch]:
        for ids in self.held_out.split(256):
            yield {"ids": ids}

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        target = batch["ids"].sort(-1).values
        return token_loss(model(batch["ids"]), target, pad=IGNORE_INDEX, smoothing=smoothing)

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """The share of lists that are sorted without a mistake."""
        predicted = model(self.held_out.to(device_of(model))).argmax(-1).cpu()
        texts, right = ([str(row) for row in rows.tolist()] for rows in (predicted, self.held_out.sort(-1).values))
        return (exact_match(texts, right),), f"{self.held_out[0].tolist()} → {predicted[0].tolist()}"

    def example(self) -> PreparedInput:
        ids = self.held_out[:1]
        return PreparedInput((ids,), encoder=[str(digit) for digit in ids[0].tolist()])


class Sorter(Predictor, task=Sort):
    """What `clearhead.load` returns for such a model."""

    verb = "sort"
    example_inputs = ("31415", "27182")

    @torch.inference_mode()
    def sort(self, digits: str) -> str:
        return self.output_of(self.network(*self.prepare(digits).inputs)[0]).replace(" ", "")

    def prepare(self, item: str) -> PreparedInput:
        if not item.isdecimal():
            raise DataError(f"{item!r} is not a list of digits")
        ids = torch.tensor([[int(digit) for digit in item]])
        return PreparedInput((ids,), encoder=list(item), text=item, choices=self.choices)

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"sorted": self.sort(item)} for item in items]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return self.sort(item)
