"""Classification of texts: one label for each.

B texts, T tokens, C classes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data import Labelled
from clearhead.data.batches import pad
from clearhead.train.losses import class_loss
from clearhead.train.task import Batch, Examples
from clearhead.train.tasks.common import TextLabelTask, device_of, numbered


class Classify(TextLabelTask):
    """Choose one of a few labels for a text; its first token is the class token."""

    kind = "labelled"

    def text(self, example: Labelled) -> str:
        """The text."""
        return example.text

    def labels_of(self, example: Labelled) -> Sequence[str]:
        """The one."""
        return (example.label,)

    def encode(self, examples: Sequence[Labelled]) -> list[list[int]]:
        """The class token, then the text up to the longest length."""
        room = self.config.data.max_length - 1
        texts = self.vocabulary.encode_batch([each.text for each in examples])
        return [[self.vocabulary.cls, *ids[:room]] for ids in texts]

    def numbers(self, examples: Sequence[Labelled], known: Sequence[str]) -> NDArray[np.int64]:
        """One for each text."""
        return numbered((each.label for each in examples), known, self.config.data.path)

    def batch(self, examples: Examples) -> Batch:
        """Some training texts, a share of their tokens hidden where that is asked for."""
        batch = super().batch(examples)
        share = self.config.data.augment
        return {**batch, "ids": self._hidden(batch["ids"], share)} if share else batch

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """One loss for each text."""
        return class_loss(model(batch["ids"]), batch["labels"], smoothing=smoothing)

    def answers(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """One label for each text."""
        for batch in self.validation():
            yield model(batch["ids"].to(device_of(model))).argmax(-1), batch["labels"]

    def _hidden(self, ids: Tensor, share: float) -> Tensor:
        """Ids of which a share, at random, is the unknown token; class token and padding stay."""
        words = (ids != self.vocabulary.pad) & (ids != self.vocabulary.cls)
        return torch.where(words & (torch.rand(ids.shape) < share), self.vocabulary.unknown, ids)

    def tensors(self, ids: Sequence[list[int]], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) and labels (B,)."""
        rows = pad([ids[i] for i in indices], self.vocabulary.pad)
        return {"ids": torch.from_numpy(rows), "labels": torch.from_numpy(labels[indices])}
