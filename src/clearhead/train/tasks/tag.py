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
from clearhead.data.batches import Batches
from clearhead.data.collate import pad
from clearhead.models.build import Sizes
from clearhead.train.losses import token_loss
from clearhead.train.run import Facts
from clearhead.train.task import Batch, Examples, Workspace
from clearhead.train.tasks.common import (
    LabelTask,
    device_of,
    in_turn,
    known_labels,
    numbered,
    read_kind,
    trained_tokenizer,
)
from clearhead.train.watch import LONGEST, Example

IGNORED = -100  # the tag of padding
Ids = list[list[int]]


class Tag(LabelTask):
    """Choose a tag for each word; a word that is several tokens is represented by its first."""

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, "tagged", workspace)
        train: list[Tagged] = list(dataset.train)
        held_out: list[Tagged] = list(dataset.validation)
        self.config = config
        self.tokenizer = self.vocabulary = trained_tokenizer(config, workspace, (" ".join(s.tokens) for s in train))
        tags = known_labels((tag for sentence in train for tag in sentence.tags), workspace, config.data.path)
        self.ids, self.tags = self._encode(train, tags)
        self.held_out_ids, self.held_out_tags = self._encode(held_out, tags)
        sizes = Sizes(vocabulary=len(self.vocabulary), classes=len(tags), pad=self.vocabulary.pad)
        self.facts = Facts(sizes, tags)

    def cursor(self) -> Batches:
        """Batches by token budget."""
        lengths = [len(ids) for ids in self.ids]
        return Batches(lengths, budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        """ids (B, T) and tags (B, T)."""
        return self._tensors(self.ids, self.tags, examples.tolist())

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """One loss for each word."""
        return token_loss(model(batch["ids"]), batch["tags"], pad=IGNORED, smoothing=smoothing)

    def validation(self) -> Iterator[Batch]:
        """The held-out sentences, similar lengths together."""
        for indices in in_turn([len(ids) for ids in self.held_out_ids], self.config.data.batch_tokens):
            yield self._tensors(self.held_out_ids, self.held_out_tags, indices)

    def answers(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """One tag for each word of each sentence."""
        for batch in self.validation():
            best, real = model(batch["ids"].to(device_of(model))).argmax(-1).cpu(), batch["tags"] != IGNORED
            yield best[real], batch["tags"][real]

    def example(self) -> Example:
        """The first held-out sentence."""
        ids = self.held_out_ids[0][:LONGEST]
        return Example((torch.tensor([ids]),), encoder=self.vocabulary.pieces(ids))

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

    def _tensors(self, ids: Sequence[list[int]], tags: Sequence[NDArray[np.int64]], indices: list[int]) -> Batch:
        return {
            "ids": torch.from_numpy(pad([ids[i] for i in indices], self.vocabulary.pad)),
            "tags": torch.from_numpy(pad([tags[i] for i in indices], IGNORED)),
        }
