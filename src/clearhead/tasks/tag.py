"""Tagging: one label for each word; and the tagger.

A word is read with its features (its ending, its neighbours), so that one that training never saw is not unknown; or as
its pieces, and its tag is chosen at its last piece. B sentences, T words or pieces, F features
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data import Tagged
from clearhead.data.batches import pad
from clearhead.errors import ProbeError
from clearhead.look.inputs import PreparedInput
from clearhead.models.classifier import Tagger as TaggerNetwork
from clearhead.models.classifier import TextEncoder, WordEncoder
from clearhead.models.config import WordFeatureConfig
from clearhead.run import Sizes
from clearhead.tasks.base.labels import TextLabelTask, Words, numbered, padded_batches, word_tensor
from clearhead.tasks.base.losses import IGNORE_INDEX, token_loss
from clearhead.tasks.base.predictor import BATCH, Predictor
from clearhead.tasks.base.recipe import Budget, DataFacts, Recipe
from clearhead.tasks.base.task import Batch, device_of
from clearhead.text import Tokenizer
from clearhead.text.word_features import word_features


class TagModel(WordFeatureConfig):
    """A tagger."""

    pieces: Literal["all", "first"] = Field("all", description="what is read of a word that is several tokens")
    labelled_piece: Literal["first", "last"] = Field("last", description="which piece of a word has its tag")


class Tag(TextLabelTask[TagModel, Tagged]):
    """Choose a tag for each word."""

    name = "tag"
    title = "A tagger"
    data_kind = "tagged"
    model_type = TagModel
    rank = 3
    metric, score_names = "accuracy", ("accuracy", "macro F1")
    defaults = {"model": {"positions": "learned", "feed_forward": "gelu"}, "tokenizer": {"size": 2000}}

    @classmethod
    def migrate(cls, values: dict[str, Any]) -> None:
        """Before version 2, runs read the first token of each word."""
        if "tied" in values.get("model", {}):  # every setting is there: the file of a run
            values["model"].setdefault("pieces", "first")

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:
        """Whole words with their features: the ending of a word and its neighbours say much about its tag."""
        own = {
            "tokenizer.kind": "word",
            "tokenizer.size": max(500, round(facts.examples * facts.length / max(facts.word, 1.0) / 10, -2)),
            "tokenizer.lowercase": True,
            "model.pieces": "first",
            "model.features": 8192,
            "train.matrix_rate": 0.01,
        }
        return {**super().recipe(facts, budget), **own}

    @classmethod
    def build(cls, model: TagModel, sizes: Sizes) -> nn.Module:
        encoder = (
            WordEncoder(model, sizes.vocabulary, sizes.pad)
            if model.features
            else TextEncoder(model, sizes.vocabulary, sizes.pad, model.ngrams, model.causal)
        )
        return TaggerNetwork(model, sizes.vocabulary, sizes.classes, sizes.pad, encoder)

    def text(self, example: Tagged) -> str:
        return " ".join(example.tokens)

    def labels_of(self, example: Tagged) -> Sequence[str]:
        return example.tags

    def encode(self, examples: Sequence[Tagged]) -> list[Words]:
        """The words of each sentence, up to the longest length."""
        return [encode_words(self.tokenizer, each.tokens, self.config) for each in examples]

    def label_numbers(
        self, examples: Sequence[Tagged], ids: Sequence[Words], known: Sequence[str]
    ) -> list[NDArray[np.int64]]:
        """The number of each word's tag at the piece that has it."""
        rows = []
        for each, words in zip(examples, ids, strict=True):
            row = np.full(len(words.ids), IGNORE_INDEX)
            row[words.ends] = numbered(each.tags[: len(words.ends)], known, self.config.data.path)
            rows.append(row)
        return rows

    def tensors(self, ids: Sequence[Words], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) or (B, T, 1 + F), and tags (B, T)."""
        return {
            "ids": word_tensor([ids[i] for i in indices], self.tokenizer.pad),
            "tags": torch.from_numpy(pad([labels[i] for i in indices], IGNORE_INDEX)),
        }

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return token_loss(model(batch["ids"]), batch["tags"], pad=IGNORE_INDEX, smoothing=smoothing)

    def predicted_and_right(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.validation():
            best, real = model(batch["ids"].to(device_of(model))).argmax(-1).cpu(), batch["tags"] != IGNORE_INDEX
            yield best[real], batch["tags"][real]


def encode_words(tokenizer: Tokenizer, words: Sequence[str], config: Config[TagModel]) -> Words:
    """The pieces of as many words as fit into the longest length."""
    room = config.data.max_length - len(tokenizer.suffix)
    longest = room - len(tokenizer.prefix) if config.model.pieces == "all" else 1
    first = config.model.labelled_piece == "first"
    ids: list[int] = [*tokenizer.prefix]
    ends: list[int] = []
    for word in tokenizer.encode_words(words):
        pieces = word[:longest] or [tokenizer.unknown]
        if len(ids) + len(pieces) > room:
            break
        ends.append(len(ids) if first else len(ids) + len(pieces) - 1)
        ids += pieces
    ids += tokenizer.suffix
    rows = config.model.features
    return Words(ids, ends, _features(words[: len(ends)], rows, tokenizer) if rows else None)


def _features(words: Sequence[str], rows: int, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """(T, F): the features of words; the tokens around them have none."""
    return np.pad(word_features(words, rows), ((len(tokenizer.prefix), len(tokenizer.suffix)), (0, 0)))


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
        """A text that is longer than those of the training is tagged part by part."""
        words = [text.split() for text in texts]
        parts: list[tuple[int, Words]] = []  # the number of the text, and some of its words
        for number, rest in enumerate(words):
            first, most = 0, self.config.data.max_length
            while first < len(rest):
                part = encode_words(self.tokenizer, rest[first : first + most], self.config)
                parts.append((number, part))
                first += len(part.ends)
        tags: list[list[str]] = [[] for _ in parts]
        rows = [part for _, part in parts]
        for indices in padded_batches(rows, BATCH):
            best = self.engines.apply(word_tensor([rows[i] for i in indices], self.tokenizer.pad)).argmax(-1)
            for i, numbers in zip(indices, best.tolist(), strict=True):
                tags[i] = [self.meta.labels[numbers[end]] for end in parts[i][1].ends]
        found: list[list[str]] = [[] for _ in texts]
        for (number, _), part_tags in zip(parts, tags, strict=True):
            found[number] += part_tags
        return [list(zip(*each, strict=True)) for each in zip(words, found, strict=True)]

    def prepare(self, item: str) -> PreparedInput:
        words = item.split()
        if not words:
            raise ProbeError("there is nothing to look at: the text has no words")
        encoded = encode_words(self.tokenizer, words, self.config)
        strings = words if len(encoded.ids) == len(words) else self.token_strings(encoded.ids)
        read = word_tensor([encoded], self.tokenizer.pad)
        return PreparedInput((read,), encoder=strings, text=item, choices=self.choices)

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"tags": tags} for tags in self.tag(items)]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return " ".join(tag for _, tag in self.tag(item))

    def token_vectors(self, inputs: Tensor) -> Tensor:
        """A text comes as the ids of its tokens: the features are those of the tokens, not of unknown words."""
        if rows := self.config.model.features:
            read = [Words(ids, [], word_features(self.tokenizer.pieces(ids), rows)) for ids in inputs.tolist()]
            inputs = word_tensor(read, self.tokenizer.pad)
        return self.engines.encode(inputs)
