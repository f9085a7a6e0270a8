"""What tasks share that choose labels: for a text, for each of its words, or for an image.

B examples, T tokens, C classes
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data.batches import Batches, pad
from clearhead.data.dataset import find_reader
from clearhead.data.examples import AnyDataset
from clearhead.errors import DataError
from clearhead.look.inputs import MAX_LOGGED, PreparedInput
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.metrics import Score, accuracy, confusion_matrix, macro_f1
from clearhead.tasks.base.recipe import MUON, Budget, DataFacts, Recipe, shape
from clearhead.tasks.base.task import Batch, Examples, ModelT, Task, Workspace, read_dataset, train_tokenizer
from clearhead.tasks.base.text import sorted_batches
from clearhead.text import Tokenizer
from clearhead.text.word_features import FEATURES

ExampleT = TypeVar("ExampleT")
Labels = NDArray[np.int64]

MOST_LABELS = 40  # of a confusion matrix in metrics.jsonl
MAJORITY = 0.9  # of the validation part: an accuracy means little then
MANY = 50  # examples of which most should not have a label of their own


@dataclass(frozen=True)
class Classification:
    """The likeliest label, and the probability of each."""

    label: str
    probabilities: dict[str, float]


class LabelTask(Task[ModelT]):
    """A task whose answers are labels."""

    answers: tuple[list[int], list[int]] = ([], [])  # predicted and right ones of the last evaluation

    @abstractmethod
    def predicted_and_right(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each batch of `validation`: the numbers of the likeliest labels, and of the right ones."""

    def predictions(self, model: nn.Module) -> tuple[list[int], list[int]]:
        batches = [(predicted.tolist(), right.tolist()) for predicted, right in self.predicted_and_right(model)]
        predicted, right = zip(*self.share.merge(batches), strict=True)
        return list(chain.from_iterable(predicted)), list(chain.from_iterable(right))

    def scores(self, model: nn.Module) -> tuple[tuple[Score, ...], str]:
        """Accuracy and macro F1."""
        predicted, right = self.answers = self.predictions(model)
        return (accuracy(predicted, right), macro_f1(predicted, right)), ""

    def confusion(self) -> dict[str, Any] | None:
        """None if there are more labels than a table can show."""
        labels = self.meta.labels
        if not self.answers[0] or len(labels) > MOST_LABELS:
            return None
        return {"labels": list(labels), "counts": confusion_matrix(*self.answers, range(len(labels)))}


class TextLabelTask(LabelTask[ModelT], Generic[ModelT, ExampleT]):
    """A task that labels texts, or each of their words."""

    tokenizer: Tokenizer
    text_encoder = "encoder."

    @classmethod
    def facts(cls, dataset: AnyDataset) -> DataFacts:
        examples = list(dataset.train)
        reader = find_reader(cls.data_kind)
        texts = [text for each in examples for side in reader.texts(each).values() for text in side]
        characters, words = sum(map(len, texts)), sum(len(text.split()) for text in texts)
        unit = reader.unit
        return DataFacts(len(examples), unit, characters / max(1, len(examples)), word=characters / max(1, words))

    @classmethod
    def default_minutes(cls, facts: DataFacts) -> float:
        return min(20.0, max(1.0, round(facts.examples / 5000)))

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:  # noqa: ARG003
        """Few texts are soon learned by heart: much dropout, and the best weights are kept."""
        return {
            **MUON,
            **shape(128, 2),
            "data.batch_tokens": 1024,
            "model.positions": "rotary",
            "model.dropout": 0.3,
            "train.learning_rate": 0.004,
            "train.matrix_rate": 0.004,
            "train.weight_decay": 0.1,
            "train.label_smoothing": 0.1,
            "train.average": 0.98,
            "train.evaluations": 10,
            "train.patience": 10,  # all: none ends the training before its rate has fallen
        }

    def __init__(self, config: Config[ModelT], workspace: Workspace):
        dataset = read_dataset(config, self.data_kind, workspace)
        self.config = config
        train, held_out = self.usable(dataset.train), self.usable(dataset.validation)
        self.tokenizer = train_tokenizer(config, workspace, (self.text(each) for each in train))
        found = (label for each in train for label in self.labels_of(each))
        known = known_labels(found, workspace, config.data.path)
        self.ids, self.held_out_ids = self.encode(train), self.encode(held_out)
        self.labels = self.label_numbers(train, self.ids, known)
        self.held_out_labels = self.label_numbers(held_out, self.held_out_ids, known)
        sizes = Sizes(vocabulary=len(self.tokenizer), classes=len(known), pad=self.tokenizer.pad)
        self.meta = ModelMeta(sizes, known)
        notes = (*self._left_out(dataset, len(train) + len(held_out)), *self._cut())
        self.notes = (*notes, *majority_note([self.labels_of(each) for each in held_out]))

    def usable(self, examples: Iterable[ExampleT]) -> list[ExampleT]:
        """The examples that have a text and a label."""
        return [each for each in examples if self.text(each).strip() and all(self.labels_of(each))]

    def _left_out(self, dataset: AnyDataset, kept: int) -> Iterator[str]:
        if left_out := len(list(dataset.train)) + len(list(dataset.validation)) - kept:
            yield f"{left_out:,} examples without a text or without a label are left out"

    def _cut(self) -> Iterator[str]:
        longest = self.config.data.max_length
        if count := sum(len(ids) >= longest for ids in self.ids):
            yield f"{count:,} texts of {longest} tokens or more are cut to their beginning (data.max_length)"

    @abstractmethod
    def text(self, example: ExampleT) -> str:
        """What the tokenizer is trained on."""

    @abstractmethod
    def labels_of(self, example: ExampleT) -> Sequence[str]:
        """The label of a text, or those of its words."""

    @abstractmethod
    def encode(self, examples: Sequence[ExampleT]) -> Sequence[Words]:
        """Each text as it is read, up to the longest length."""

    @abstractmethod
    def label_numbers(self, examples: Sequence[ExampleT], ids: Sequence[Words], known: Sequence[str]) -> Any:
        """The number of each text's label, or an array with one for each word."""

    @abstractmethod
    def tensors(self, ids: Sequence[Words], labels: Any, indices: list[int]) -> Batch:
        """The ids (B, T), or (B, T, 1 + F) with features, and the labels of some texts."""

    def cursor(self) -> Batches:
        lengths = [len(ids) for ids in self.ids]
        return Batches(lengths, budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        return self.tensors(self.ids, self.labels, examples.tolist())

    def validation(self) -> Iterator[Batch]:
        batches = sorted_batches([len(ids) for ids in self.held_out_ids], self.config.data.batch_tokens)
        for indices in self.share.mine(batches):
            yield self.tensors(self.held_out_ids, self.held_out_labels, indices)

    def example(self) -> PreparedInput:
        """The beginning of the first held-out text."""
        words = self.held_out_ids[0].first(MAX_LOGGED)
        return PreparedInput((word_tensor([words], self.tokenizer.pad),), encoder=self.tokenizer.pieces(words.ids))


@dataclass(frozen=True)
class Words:
    """Some words, or the tokens of a text, as the network reads them."""

    ids: list[int]  # of their pieces
    ends: list[int] = field(default_factory=list)  # the index of the piece of each word that has its tag
    features: NDArray[np.int64] | None = None  # (T, F) where a word is one piece

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, count: int) -> Words:
        """The first pieces."""
        features = None if self.features is None else self.features[:count]
        return Words(self.ids[:count], [end for end in self.ends if end < count], features)


def word_tensor(rows: Sequence[Words], padding: int) -> Tensor:
    """(B, T) ids, or (B, T, 1 + F): the id of each word and the numbers of its features."""
    ids = torch.from_numpy(pad([words.ids for words in rows], padding))  # (B, T)
    if rows[0].features is None:
        return ids
    features = torch.zeros(*ids.shape, FEATURES, dtype=torch.int64)
    for row, words in zip(features, rows, strict=True):
        row[: len(words)] = torch.from_numpy(words.features)
    return torch.cat([ids[..., None], features], -1)


def known_labels(found: Iterable[str], workspace: Workspace, path: str) -> tuple[str, ...]:
    """The labels of the finished model, or all that are found, sorted; a model must know those found."""
    if workspace.meta is None:
        given = list(found)
        labels = tuple(sorted(set(given)))
        if len(given) >= MANY and 2 * len(labels) > len(given):
            message = f"has {len(labels):,} different labels in {len(given):,} examples, too many to learn any of them"
            raise DataError(f"{message}; choose the column of the label with data.target=…", path=path)
        if len(labels) < 2:
            listed = f"the one label {labels[0]}" if labels else "no label"
            raise DataError(f"has {listed}; there must be at least two to choose from", path=path)
        return labels
    known = workspace.meta.labels
    if unseen := sorted(set(found) - set(known)):
        raise DataError(f"has labels that the model never saw: {', '.join(unseen[:5])}", path=path)
    return known


def majority_note(right: Iterable[Sequence[str]]) -> Iterator[str]:
    """A sentence about the accuracy of who always says the commonest label, where that is high."""
    counts = Counter(chain.from_iterable(right))
    label, most = counts.most_common(1)[0] if counts else ("", 0)
    if most > MAJORITY * counts.total():
        share = most / counts.total()
        yield f"{label} is {share:.1%} of the validation part: an accuracy of {share:.1%} is that of always saying so"


def numbered(labels: Iterable[str], known: Sequence[str], path: str) -> Labels:
    """The index of each label among the known ones; a validation label that training never saw is refused."""
    index = {label: number for number, label in enumerate(known)}
    labels = list(labels)
    if unseen := sorted(set(labels) - set(known)):
        listed = ", ".join(unseen[:5])
        raise DataError(f"validation has labels that training has not: {listed}; add examples of them", path=path)
    return np.array([index[label] for label in labels], dtype=np.int64)


def classifications(probabilities: Tensor, labels: Sequence[str]) -> list[Classification]:
    """(B, C) -> the likeliest label of each row, with the probabilities of all."""
    best = probabilities.argmax(-1).tolist()
    rows = probabilities.tolist()
    return [
        Classification(labels[number], dict(zip(labels, row, strict=True)))
        for number, row in zip(best, rows, strict=True)
    ]


def padded_batches(rows: Sequence[Sized], size: int) -> Iterator[list[int]]:
    """The indices of rows in batches of at most `size`, similar lengths together."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for first in range(0, len(order), size):
        yield order[first : first + size]
