"""Tagging: one label for each word; and the tagger.

B sentences, T words
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data import Tagged
from clearhead.data.batches import pad
from clearhead.errors import ProbeError
from clearhead.look.inputs import PreparedInput
from clearhead.models.classifier import Tagger as TaggerNetwork
from clearhead.models.config import ModelConfig
from clearhead.run import Sizes
from clearhead.tasks.base.labels import TextLabelTask, numbered, padded_batches
from clearhead.tasks.base.losses import IGNORE_INDEX, token_loss
from clearhead.tasks.base.predictor import BATCH, Predictor
from clearhead.tasks.base.task import Batch, device_of


class TagModel(ModelConfig):
    """A tagger."""


class Tag(TextLabelTask[TagModel, Tagged]):
    """Choose a tag for each word; a word that is several tokens is represented by its first."""

    name = "tag"
    title = "A tagger"
    data_kind = "tagged"
    model_type = TagModel
    rank = 3
    defaults = {"model": {"positions": "learned", "feed_forward": "gelu"}, "tokenizer": {"kind": "word"}}

    @classmethod
    def build(cls, model: TagModel, sizes: Sizes) -> nn.Module:
        return TaggerNetwork(model, sizes.vocabulary, sizes.classes, sizes.pad)

    def text(self, example: Tagged) -> str:
        return " ".join(example.tokens)

    def labels_of(self, example: Tagged) -> Sequence[str]:
        return example.tags

    def encode(self, examples: Sequence[Tagged]) -> list[list[int]]:
        """One id for each word, up to the longest length."""
        texts = (self.tokenizer.encode_batch(list(each.tokens[: self.config.data.max_length])) for each in examples)
        return [[word[0] if word else self.tokenizer.unknown for word in words] for words in texts]

    def label_numbers(self, examples: Sequence[Tagged], known: Sequence[str]) -> list[NDArray[np.int64]]:
        longest = self.config.data.max_length
        return [numbered(each.tags[:longest], known, self.config.data.path) for each in examples]

    def tensors(self, ids: Sequence[list[int]], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) and tags (B, T)."""
        return {
            "ids": torch.from_numpy(pad([ids[i] for i in indices], self.tokenizer.pad)),
            "tags": torch.from_numpy(pad([labels[i] for i in indices], IGNORE_INDEX)),
        }

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return token_loss(model(batch["ids"]), batch["tags"], pad=IGNORE_INDEX, smoothing=smoothing)

    def predicted_and_right(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.validation():
            best, real = model(batch["ids"].to(device_of(model))).argmax(-1).cpu(), batch["tags"] != IGNORE_INDEX
            yield best[real], batch["tags"][real]


class Tagger(Predictor, task=Tag):
    """Chooses a tag for each word of a text that is split at white space."""

    config: Config[TagModel]
    verb = "tag"
    example_inputs = ("the old dog sees a small cat",)

    @overload
    def tag(self, text: str) -> list[tuple[str, str]]: ...
    @overload
    def tag(self, text: list[str]) -> list[list[tuple[str, str]]]: ...
    def tag(self, text: str | list[str]) -> list[tuple[str, str]] | list[list[tuple[str, str]]]:
        """(word, tag) for each word of a text; a list gives a list."""
        if isinstance(text, str):
            return self._tag([text])[0]
        return self._tag(text)

    @torch.inference_mode()
    def _tag(self, texts: list[str]) -> list[list[tuple[str, str]]]:
        sentences = [text.split() for text in texts]
        rows = [self.word_ids(words) for words in sentences]
        found: list[list[tuple[str, str]]] = [[] for _ in texts]
        for indices in padded_batches(rows, BATCH):
            indices = [i for i in indices if rows[i]]
            if not indices:
                continue
            best = self.network(torch.from_numpy(pad([rows[i] for i in indices], self.tokenizer.pad))).argmax(-1)
            for i, numbers in zip(indices, best.tolist(), strict=True):
                found[i] = [
                    (word, self.meta.labels[number]) for word, number in zip(sentences[i], numbers, strict=False)
                ]
        return found

    def word_ids(self, words: Sequence[str]) -> list[int]:
        """One id for each word."""
        return [(self.tokenizer.encode(word) or [self.tokenizer.unknown])[0] for word in words]

    def prepare(self, item: str) -> PreparedInput:
        words = item.split()
        if not words:
            raise ProbeError("there is nothing to look at: the text has no words")
        ids = torch.tensor([self.word_ids(words)])
        return PreparedInput((ids,), encoder=words, text=item, choices=self.choices)

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"tags": tags} for tags in self.tag(items)]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return " ".join(tag for _, tag in self.tag(item))

    def token_vectors(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = self.network.encoder(inputs)  # type: ignore[operator]
        return vectors
