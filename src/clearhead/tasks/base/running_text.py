"""What tasks share that learn from running text: token files and windows.

B windows, T tokens
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from clearhead.config import Config
from clearhead.data.examples import AnyDataset
from clearhead.data.windows import TokenFile, Windows, write_tokens
from clearhead.errors import DataError
from clearhead.models.config import RecurrentConfig
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.recipe import MUON, Budget, DataFacts, Recipe, shape
from clearhead.tasks.base.task import Batch, Examples, Task, Workspace, read_dataset, train_tokenizer
from clearhead.text import Tokenizer


class WindowModel(RecurrentConfig):
    """A model of running text."""

    length: int = Field(256, ge=1, description="tokens of running text in one window")


WindowT = TypeVar("WindowT", bound=WindowModel)


class RunningTextTask(Task[WindowT]):
    """Learn from windows of running text."""

    data_kind = "text"
    defaults = {"model": {"positions": "rotary", "feed_forward": "gelu"}, "tokenizer": {"kind": "bytes"}}
    tokenizer: Tokenizer
    text_encoder = ""

    @classmethod
    def facts(cls, dataset: AnyDataset) -> DataFacts:
        return DataFacts(sum(map(len, dataset.train)), "characters")

    @classmethod
    def default_minutes(cls, facts: DataFacts) -> float:
        return 5.0 if facts.examples < 2_000_000 else 15.0

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:
        dim, layers = (192, 3) if budget.core_minutes < 20 else (256, 4)
        return {
            **MUON,
            **shape(dim, layers),
            "tokenizer.kind": "bytes",
            "tokenizer.size": min(8000, max(512, round(facts.examples**0.5, -2))),
            "data.batch_tokens": 1024 if budget.core_minutes < 10 else 2048,
            "model.length": 64 if budget.core_minutes < 10 else 128,
        }

    def __init__(self, config: Config[WindowT], workspace: Workspace):
        dataset = read_dataset(config, "text", workspace)
        self.config = config
        self.tokenizer = train_tokenizer(config, workspace, dataset.train)
        self.train = token_file(dataset.train, self.tokenizer, workspace, "train")
        self.held_out = token_file(dataset.validation, self.tokenizer, workspace, "validation")
        self.characters = sum(len(block) for block in dataset.validation)
        self.meta = ModelMeta(Sizes(vocabulary=len(self.tokenizer), pad=self.tokenizer.pad))

    @abstractmethod
    def tensors(self, rows: Tensor) -> Batch:
        """Windows (B, T + 1) -> `ids` (B, T) and `targets` (B, T)."""

    @property
    def window_length(self) -> int:
        """Tokens of a window; a foreign model may read more than a batch has room for."""
        length: int = self.config.model.length
        return min(length, self.config.data.batch_tokens) if self.tokenizer.config else length

    def cursor(self) -> Windows:
        """Windows in a new order, from another first token, in each epoch."""
        length, count = self.window_length, len(self.train)
        if count <= length:
            few = f"has {count} tokens to train on, too few for one window of {length} + 1"
            raise DataError(f"{few}; add text, or shorten the window (model.length)", path=self.config.data.path)
        rows = max(1, self.config.data.batch_tokens // length)
        return Windows(self.train, length=length, batch=rows, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        return self.tensors(torch.from_numpy(examples))

    def validation(self) -> Iterator[Batch]:
        """The whole validation text, window after window; every token but the first is a target once."""
        length, count = self.window_length, len(self.held_out)
        rows = max(1, self.config.data.batch_tokens // length)
        starts = np.arange(0, count - 1, length)
        whole = starts[starts + length < count]
        batches = [whole[first : first + rows] for first in range(0, len(whole), rows)]
        if len(whole) < len(starts):
            batches.append(starts[-1:])
        for batch in self.share.mine(batches):
            size = min(length + 1, count - int(batch[-1]))
            yield self.tensors(torch.from_numpy(self.held_out.read(batch, size)))


def token_file(blocks: Iterable[str], tokenizer: Tokenizer, workspace: Workspace, part: str) -> TokenFile:
    """The tokens of a part of the data, written once for a run."""
    path = workspace.folder / f"{part}.npy"
    return TokenFile.open(path) if path.exists() else write_tokens(workspace.counted(blocks), tokenizer, path)
