"""Tagging: one label for each word.

B sentences, T words
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import Config
from clearhead.data import Tagged
from clearhead.data.collate import pad
from clearhead.models.build import Sizes
from clearhead.train.losses import token_loss
from clearhead.train.run import Facts
from clearhead.train.task import Batch, Workspace
from clearhead.train.tasks.common import (
    TextLabelTask,
    device_of,
    known_labels,
    numbered,
    read_kind,
    trained_tokenizer,
)

IGNORED = -100  # the tag of padding


class Tag(TextLabelTask):
    """Choose a tag for each word; a word that is several tokens is represented by its first."""

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, "tagged", workspace)
        train: list[Tagged] = list(dataset.train)
        held_out: list[Tagged] = list(dataset.validation)
        self.config = config
        self.tokenizer = self.vocabulary = trained_tokenizer(config, workspace, (" ".join(s.tokens) for s in train))
        tags = known_labels((tag for sentence in train for tag in sentence.tags), workspace, config.data.path)
        self.ids, self.labels = self._encode(train, tags)
        self.held_out_ids, self.held_out_labels = self._encode(held_out, tags)
        sizes = Sizes(vocabulary=len(self.vocabulary), classes=len(tags), pad=self.vocabulary.pad)
        self.facts = Facts(sizes, tags)

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """One loss for each word."""
        return token_loss(model(batch["ids"]), batch["tags"], pad=IGNORED, smoothing=smoothing)

    def answers(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """One tag for each word of each sentence."""
        for batch in self.validation():
            best, real = model(batch["ids"].to(device_of(model))).argmax(-1).cpu(), batch["tags"] != IGNORED
            yield best[real], batch["tags"][real]

    def _encode(
        self, sentences: Sequence[Tagged], tags: Sequence[str]
    ) -> tuple[list[list[int]], list[NDArray[np.int64]]]:
        """One id and one tag number for each word, up to the longest length."""
        longest = self.config.data.max_length
        ids = []
        for sentence in sentences:
            words = self.vocabulary.encode_batch(list(sentence.tokens[:longest]))
            ids.append([word[0] if word else self.vocabulary.unknown for word in words])
        numbers = [numbered(sentence.tags[:longest], tags, self.config.data.path) for sentence in sentences]
        return ids, numbers

    def tensors(self, ids: Sequence[list[int]], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) and tags (B, T)."""
        return {
            "ids": torch.from_numpy(pad([ids[i] for i in indices], self.vocabulary.pad)),
            "tags": torch.from_numpy(pad([labels[i] for i in indices], IGNORED)),
        }
