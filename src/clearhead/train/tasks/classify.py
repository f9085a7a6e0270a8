"""Classification of texts: one label for each.

B texts, T tokens, C classes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.config import Config
from clearhead.data import Labelled
from clearhead.data.collate import pad
from clearhead.models.build import Sizes
from clearhead.train.losses import class_loss
from clearhead.train.run import Facts
from clearhead.train.task import Batch, Examples, Workspace
from clearhead.train.tasks.common import (
    TextLabelTask,
    device_of,
    known_labels,
    numbered,
    read_kind,
    trained_tokenizer,
)


class Classify(TextLabelTask):
    """Choose one of a few labels for a text; its first token is the class token."""

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, "labelled", workspace)
        train: list[Labelled] = list(dataset.train)
        held_out: list[Labelled] = list(dataset.validation)
        self.config = config
        self.tokenizer = self.vocabulary = trained_tokenizer(config, workspace, (each.text for each in train))
        labels = known_labels((each.label for each in train), workspace, config.data.path)
        self.ids, self.held_out_ids = self._encode(train), self._encode(held_out)
        self.labels = numbered((each.label for each in train), labels, config.data.path)
        self.held_out_labels = numbered((each.label for each in held_out), labels, config.data.path)
        sizes = Sizes(vocabulary=len(self.vocabulary), classes=len(labels), pad=self.vocabulary.pad)
        self.facts = Facts(sizes, labels)

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

    def _encode(self, examples: Sequence[Labelled]) -> list[list[int]]:
        """The class token, then the text up to the longest length."""
        room = self.config.data.max_length - 1
        texts = self.vocabulary.encode_batch([each.text for each in examples])
        return [[self.vocabulary.cls, *ids[:room]] for ids in texts]

    def tensors(self, ids: Sequence[list[int]], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) and labels (B,)."""
        rows = pad([ids[i] for i in indices], self.vocabulary.pad)
        return {"ids": torch.from_numpy(rows), "labels": torch.from_numpy(labels[indices])}
