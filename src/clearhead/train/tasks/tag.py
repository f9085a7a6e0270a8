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

from clearhead.data import Tagged
from clearhead.data.batches import pad
from clearhead.train.losses import token_loss
from clearhead.train.task import Batch
from clearhead.train.tasks.common import TextLabelTask, device_of, numbered

IGNORED = -100  # the tag of padding


class Tag(TextLabelTask):
    """Choose a tag for each word; a word that is several tokens is represented by its first."""

    kind = "tagged"

    def text(self, example: Tagged) -> str:
        """The words, with a blank between them."""
        return " ".join(example.tokens)

    def labels_of(self, example: Tagged) -> Sequence[str]:
        """One for each word."""
        return example.tags

    def encode(self, examples: Sequence[Tagged]) -> list[list[int]]:
        """One id for each word, up to the longest length."""
        texts = (self.vocabulary.encode_batch(list(each.tokens[: self.config.data.max_length])) for each in examples)
        return [[word[0] if word else self.vocabulary.unknown for word in words] for words in texts]

    def numbers(self, examples: Sequence[Tagged], known: Sequence[str]) -> list[NDArray[np.int64]]:
        """One for each word, up to the longest length."""
        longest = self.config.data.max_length
        return [numbered(each.tags[:longest], known, self.config.data.path) for each in examples]

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """One loss for each word."""
        return token_loss(model(batch["ids"]), batch["tags"], pad=IGNORED, smoothing=smoothing)

    def answers(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """One tag for each word of each sentence."""
        for batch in self.validation():
            best, real = model(batch["ids"].to(device_of(model))).argmax(-1).cpu(), batch["tags"] != IGNORED
            yield best[real], batch["tags"][real]

    def tensors(self, ids: Sequence[list[int]], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) and tags (B, T)."""
        return {
            "ids": torch.from_numpy(pad([ids[i] for i in indices], self.vocabulary.pad)),
            "tags": torch.from_numpy(pad([labels[i] for i in indices], IGNORED)),
        }
