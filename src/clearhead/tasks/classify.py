"""Classification of texts: one label for each; and the classifier.

B texts, T tokens, C classes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data import Labelled
from clearhead.data.batches import pad
from clearhead.look.inputs import PreparedInput
from clearhead.models.classifier import Classifier as ClassifierNetwork
from clearhead.models.config import EncoderConfig, PooledConfig
from clearhead.run import Sizes
from clearhead.tasks.base.labels import Classification, TextLabelTask, classifications, numbered, padded_batches
from clearhead.tasks.base.losses import class_loss
from clearhead.tasks.base.predictor import BATCH, Predictor
from clearhead.tasks.base.recipe import Budget, DataFacts, Recipe
from clearhead.tasks.base.task import Batch, Examples, device_of
from clearhead.text import Tokenizer

LONG_WORD = 15.0  # characters: the text has hardly any spaces


class ClassifyModel(PooledConfig, EncoderConfig):
    """A classifier of texts."""


class Classify(TextLabelTask[ClassifyModel, Labelled]):
    """Choose one of a few labels for a text; its first token is the class token."""

    name = "classify"
    title = "A classifier of texts"
    data_kind = "labelled"
    model_type = ClassifyModel
    rank = 2
    defaults = {"model": {"positions": "learned", "feed_forward": "gelu"}}
    unit = "examples"
    metric, score_names = "accuracy", ("accuracy", "macro F1")

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:
        """Whole words and their n-grams where texts are few; pieces where they are many, or have no spaces."""
        if facts.examples < 20_000 and facts.word < LONG_WORD:
            own: Recipe = {"tokenizer.kind": "word", "tokenizer.size": 8000, "model.ngrams": 3, "model.layers": 1}
            return {**super().recipe(facts, budget), **own, "model.dropout": 0.5}
        own = {"tokenizer.size": 8000, "tokenizer.lowercase": True, "data.augment": 0.15}
        return {**super().recipe(facts, budget), **own, "train.learning_rate": 0.002, "train.average": 0.99}

    @classmethod
    def build(cls, model: ClassifyModel, sizes: Sizes) -> nn.Module:
        return ClassifierNetwork(model, sizes.vocabulary, sizes.classes, sizes.pad, model.ngrams, model.causal)

    def text(self, example: Labelled) -> str:
        return example.text

    def labels_of(self, example: Labelled) -> Sequence[str]:
        return (example.label,)

    def encode(self, examples: Sequence[Labelled]) -> list[list[int]]:
        """The class token, then the text up to the longest length."""
        return framed_texts(self.config, self.tokenizer, [each.text for each in examples])

    def label_numbers(self, examples: Sequence[Labelled], known: Sequence[str]) -> NDArray[np.int64]:
        return numbered((each.label for each in examples), known, self.config.data.path)

    def tensors(self, ids: Sequence[list[int]], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) and labels (B,)."""
        rows = pad([ids[i] for i in indices], self.tokenizer.pad)
        return {"ids": torch.from_numpy(rows), "labels": torch.from_numpy(labels[indices])}

    def batch(self, examples: Examples) -> Batch:
        """Some training texts, a share of their tokens hidden with `data.augment`."""
        batch = super().batch(examples)
        share = self.config.data.augment
        return {**batch, "ids": self._hidden(batch["ids"], share)} if share else batch

    def _hidden(self, ids: Tensor, share: float) -> Tensor:
        """Replace a random share of the tokens by the unknown token; class token and padding stay."""
        kept = torch.tensor([self.tokenizer.pad, self.tokenizer.cls, *self.tokenizer.prefix, *self.tokenizer.suffix])
        words = ~torch.isin(ids, kept)
        return torch.where(words & (torch.rand(ids.shape) < share), self.tokenizer.unknown, ids)

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return class_loss(model(batch["ids"]), batch["labels"], smoothing=smoothing)

    def predicted_and_right(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.validation():
            yield model(batch["ids"].to(device_of(model))).argmax(-1), batch["labels"]


def framed_texts(config: Config[ClassifyModel], tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The class token, if there is one, and the ids of each text up to the longest length."""
    longest, first = config.data.max_length, _class_token(config, tokenizer)
    return [tokenizer.framed(ids, longest, first) for ids in tokenizer.encode_batch(list(texts))]


def _class_token(config: Config[ClassifyModel], tokenizer: Tokenizer) -> tuple[int, ...]:
    """What stands first; in a causal model it would see nothing, and the last token sees all."""
    return () if config.model.causal else (tokenizer.cls,)


class Classifier(Predictor, task=Classify):
    """Chooses a label for a text."""

    config: Config[ClassifyModel]
    verb = "classify"
    example_inputs = ("a warm, funny film", "two hours that I will never get back")

    @overload
    def classify(self, item: str) -> Classification: ...
    @overload
    def classify(self, item: list[str]) -> list[Classification]: ...
    def classify(self, item: str | list[str]) -> Classification | list[Classification]:
        """The label of a text, with the probability of each; a list gives a list."""
        if isinstance(item, str):
            return self._classify([item])[0]
        return self._classify(item)

    @torch.inference_mode()
    def _classify(self, texts: list[str]) -> list[Classification]:
        rows = self._rows(texts)
        found: dict[int, Classification] = {}
        for indices in padded_batches(rows, BATCH):
            ids = torch.from_numpy(pad([rows[i] for i in indices], self.tokenizer.pad))
            found |= zip(indices, classifications(self.network(ids).softmax(-1), self.meta.labels), strict=True)
        return [found[i] for i in range(len(rows))]

    def _rows(self, texts: list[str]) -> list[list[int]]:
        return framed_texts(self.config, self.tokenizer, texts)

    def prepare(self, item: str) -> PreparedInput:
        [ids] = self._rows([item])
        return PreparedInput(
            (torch.tensor([ids]),),
            encoder=self.token_strings(ids),
            text=item,
            choices=self.choices,
            class_token=not self.config.model.causal,
        )

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"label": each.label, "probabilities": each.probabilities} for each in self.classify(items)]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return self.classify(item).label

    def token_vectors(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = self.network.encoder(inputs)  # type: ignore[operator]
        return vectors

    def _embedding_prefix(self) -> list[int]:
        return list(self.tokenizer.prefix) or list(_class_token(self.config, self.tokenizer))
