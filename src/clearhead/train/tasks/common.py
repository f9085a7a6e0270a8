"""What several tasks do in the same way: read their data, learn a vocabulary, number and score their labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data.batches import Batches
from clearhead.data.dataset import chosen_reader, detect, find_reader, only, read_sources, resolve
from clearhead.data.examples import AnyDataset
from clearhead.data.readers import Detected
from clearhead.data.source import ReadOptions, Source
from clearhead.errors import DataError
from clearhead.models.build import Sizes
from clearhead.run import ModelMeta
from clearhead.text import Tokenizer
from clearhead.train.metrics import Score, accuracy, macro_f1
from clearhead.train.task import Batch, Examples, Task, Workspace
from clearhead.train.watch import LONGEST, Example


def read_kind(config: Config, kind: str, workspace: Workspace) -> AnyDataset:
    """The task's data; data of another kind is refused by name, but every kind can be read as text."""
    data = config.data
    sources = resolve(data.path, ReadOptions(data.encoding, data.source, data.target))
    chosen = chosen_reader(data.kind, kind, sources)
    found = [detect(source, chosen) for source in sources]
    if kind != "text" and not (data.source or data.target):
        _refuse_another(only(sources), found[0], kind, config.task)
    share = 0 if workspace.whole else data.validation
    dataset = read_sources(sources, found, kind, share)
    return _all_of(dataset) if workspace.whole else dataset


def _refuse_another(source: Source, found: Detected, kind: str, task: str) -> None:
    if find_reader(found.kind).example_kind != kind:
        raise DataError(
            f"looks like {found.kind} ({found.reason}), and {task} needs {kind}; "
            f"if it is {kind} all the same, say data.kind={kind}",
            path=source.name,
        )


def _all_of(dataset: AnyDataset) -> AnyDataset:
    """Every example on both sides; the parts that a folder has of its own are joined."""
    held_out = list(dataset.validation)
    everything = [*dataset.train, *held_out] if held_out else dataset.train
    return replace(dataset, train=everything, validation=everything)


def trained_tokenizer(config: Config, workspace: Workspace, texts: Iterable[str]) -> Tokenizer:
    """The run's tokenizer, or a new one learned from the training texts."""
    if workspace.tokenizer is not None:
        return workspace.tokenizer
    settings = config.tokenizer
    return Tokenizer.train(settings.kind, texts, size=settings.size, lowercase=settings.lowercase)


def known_labels(found: Iterable[str], workspace: Workspace, path: str) -> tuple[str, ...]:
    """The labels of the finished model, else all that are found, in order; the model's must have those found."""
    if workspace.meta is None:
        return tuple(sorted(set(found)))
    known = workspace.meta.labels
    if unseen := sorted(set(found) - set(known)):
        raise DataError(f"has labels that the model never saw: {', '.join(unseen[:5])}", path=path)
    return known


def numbered(labels: Iterable[str], known: Sequence[str], path: str) -> NDArray[np.int64]:
    """Each label's place among the known ones; a validation label that training never saw is refused."""
    place = {label: number for number, label in enumerate(known)}
    labels = list(labels)
    unseen = sorted(set(labels) - set(known))
    if unseen:
        listed = ", ".join(unseen[:5])
        raise DataError(f"validation has labels that training has not: {listed}; add examples of them", path=path)
    return np.array([place[label] for label in labels], dtype=np.int64)


def in_turn(lengths: Sequence[Any], budget: int) -> Iterator[list[int]]:
    """The indices of validation examples in batches, similar lengths together, always the same."""
    for indices in Batches(lengths, budget=budget, seed=0).plan(0):
        yield indices.tolist()


def device_of(model: nn.Module) -> torch.device:
    """Where the model computes."""
    return next(model.parameters()).device


class LabelTask(Task):
    """A task whose answers are labels."""

    @abstractmethod
    def answers(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of validation answers: the numbers of the likeliest labels, and of the right ones."""

    def predictions(self, model: nn.Module) -> tuple[list[int], list[int]]:
        """The numbers of the likeliest labels of the whole validation part, and of the right ones."""
        predicted, right = zip(*self.answers(model), strict=True)
        return torch.cat([each.cpu() for each in predicted]).tolist(), torch.cat(right).tolist()

    def scores(self, model: nn.Module) -> tuple[tuple[Score, ...], str]:
        """Accuracy and macro-F1."""
        predicted, right = self.predictions(model)
        return (accuracy(predicted, right), macro_f1(predicted, right)), ""


class TextLabelTask(LabelTask):
    """A task that labels texts, or each of their words."""

    kind: ClassVar[str]

    def __init__(self, config: Config, workspace: Workspace):
        dataset = read_kind(config, self.kind, workspace)
        train, held_out = list(dataset.train), list(dataset.validation)
        self.config = config
        self.tokenizer = self.vocabulary = trained_tokenizer(config, workspace, (self.text(each) for each in train))
        found = (label for each in train for label in self.labels_of(each))
        known = known_labels(found, workspace, config.data.path)
        self.ids, self.labels = self.encode(train), self.numbers(train, known)
        self.held_out_ids, self.held_out_labels = self.encode(held_out), self.numbers(held_out, known)
        self.meta = ModelMeta(
            Sizes(vocabulary=len(self.vocabulary), classes=len(known), pad=self.vocabulary.pad), known
        )

    @abstractmethod
    def text(self, example: Any) -> str:
        """What the vocabulary is learned from."""

    @abstractmethod
    def labels_of(self, example: Any) -> Sequence[str]:
        """The label of a text, or those of its words."""

    @abstractmethod
    def encode(self, examples: Sequence[Any]) -> list[list[int]]:
        """The ids of each text, up to the longest length."""

    @abstractmethod
    def numbers(self, examples: Sequence[Any], known: Sequence[str]) -> Any:
        """Of each text the number of its label, or an array with one for each word."""

    @abstractmethod
    def tensors(self, ids: Sequence[list[int]], labels: Any, indices: list[int]) -> Batch:
        """The ids (B, T) and the labels of some texts."""

    def cursor(self) -> Batches:
        """Batches by token budget."""
        lengths = [len(ids) for ids in self.ids]
        return Batches(lengths, budget=self.config.data.batch_tokens, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        """Some training texts."""
        return self.tensors(self.ids, self.labels, examples.tolist())

    def validation(self) -> Iterator[Batch]:
        """The held-out texts, similar lengths together."""
        for indices in in_turn([len(ids) for ids in self.held_out_ids], self.config.data.batch_tokens):
            yield self.tensors(self.held_out_ids, self.held_out_labels, indices)

    def example(self) -> Example:
        """The first held-out text."""
        ids = self.held_out_ids[0][:LONGEST]
        return Example((torch.tensor([ids]),), encoder=self.vocabulary.pieces(ids))
