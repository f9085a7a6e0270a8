"""A task: its configuration, its examples and batches, its loss, its scores. The training loop knows nothing else.

B examples in a batch, T tokens
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, create_model
from torch import Tensor, nn

from clearhead.config import AnyConfig, Config, Section
from clearhead.data.batches import Cursor
from clearhead.data.dataset import chosen_reader, detect, find_reader, read_sources, resolve
from clearhead.data.examples import AnyDataset
from clearhead.data.source import ReadOptions
from clearhead.errors import ConfigError, DataError, nearest
from clearhead.look.inputs import PreparedInput
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.metrics import LOWER_IS_BETTER, Score
from clearhead.tasks.base.recipe import Budget, DataFacts, Recipe
from clearhead.tasks.base.share import ALONE, Share
from clearhead.text import Tokenizer

if TYPE_CHECKING:
    from clearhead.tasks.base.predictor import Predictor

Batch = dict[str, Tensor]
Examples = NDArray[np.int64]  # what a cursor gives: indices (B,), or windows (B, T)
ModelT = TypeVar("ModelT", bound=Section)
Item = TypeVar("Item")

PROGRESS_EVERY = 0.1  # seconds

SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"dim": 64, "heads": 2, "layers": 2},
    "small": {"dim": 128, "heads": 4, "layers": 4},
    "base": {"dim": 512, "heads": 8, "layers": 6},
}


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on the validation part."""

    loss: float
    scores: tuple[Score, ...] = ()
    sample: str = ""

    def record(self) -> dict[str, Any]:
        """A line of metrics.jsonl."""
        return {"loss": self.loss, **{score.name: score.value for score in self.scores}, "sample": self.sample}

    def quality(self, metric: str) -> float:
        """The value of `loss` or of a score, negated where lower is better."""
        for score in self.scores:
            if score.name == metric:
                return -score.value if score.name in LOWER_IS_BETTER else score.value
        if metric == "loss":
            return -self.loss
        known = ["loss", *(score.name for score in self.scores)]
        raise ConfigError(f"unknown train.metric={metric}; {nearest(metric, known)}")


@dataclass(frozen=True)
class Workspace:
    """What a run gives a task: a folder for prepared data, and what is already known of the data."""

    folder: Path
    tokenizer: Tokenizer | None = None
    meta: ModelMeta | None = None  # of a finished model
    whole: bool = False  # all the data is validation: nothing is learned from it
    dataset: AnyDataset | None = None  # if it was read before
    on_phase: Callable[[str], None] = lambda _text: None  # is told what takes time
    on_progress: Callable[[int, int | None], None] = lambda _done, _total: None  # and how much of how much is done

    def counted(self, items: Iterable[Item], total: int | None = None) -> Iterator[Item]:
        """The same items; `on_progress` is told now and then how many there were."""
        last, number = time.monotonic(), 0
        for number, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - last > PROGRESS_EVERY:
                last = time.monotonic()
                self.on_progress(number, total)
        self.on_progress(number, total)


class Task(ABC, Generic[ModelT]):
    """A task on some data; made once, at the start of a run."""

    # What a subclass says of itself.
    name: ClassVar[str]
    title: ClassVar[str]  # "A translator", as cards and pages call its models
    data_kind: ClassVar[str]  # what it learns from: a reader of clearhead.data
    model_type: ClassVar[type[Section]]  # the `model` section of its configuration
    predictor: ClassVar[type[Predictor]]  # what `clearhead.load` returns
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = SIZES  # --size -> values of the `model` section
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # section -> values that differ from the usual ones
    legacy_settings: ClassVar[tuple[str, ...]] = ()  # names that `migrate` still understands
    unit: ClassVar[str] = "tokens"  # what its loss is counted in
    metric: ClassVar[str] = "loss"  # what early stopping watches: the loss or a score
    score_names: ClassVar[tuple[str, ...]] = ()  # of `scores`; empty if they depend on the data
    rank: ClassVar[int] = 100  # lists show tasks of a lower rank first
    text_encoder: ClassVar[str | None] = None  # where its model has a text encoder that another can start from
    gives_word_vectors: ClassVar[bool] = False
    takes_word_vectors: ClassVar[bool] = True  # its model has token embeddings
    row_by_row: ClassVar[bool] = True  # `batch` of some examples is those rows of the `batch` of more

    config: Config[ModelT]
    meta: ModelMeta
    tokenizer: Tokenizer | None = None
    notes: tuple[str, ...] = ()  # what the user should know about the data
    max_scored: int | None = None  # validation examples that `scores` looks at, at most; None = all
    beam_width: int = 1  # of the search when `scores` generates
    share: Share = ALONE  # of an evaluation by many processes

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            TASKS.register(cls.name)(cls)

    # --- its configuration and model ---

    @classmethod
    def config_type(cls) -> type[Config[Any]]:
        return _config_type(cls)

    @classmethod
    def migrate(cls, values: dict[str, Any]) -> None:
        """Change the values of a configuration that an older version wrote into today's."""

    @classmethod
    @abstractmethod
    def build(cls, model: ModelT, sizes: Sizes) -> nn.Module:
        """The network that a `model` section describes; its weights are drawn elsewhere."""

    @classmethod
    def check_metric(cls, metric: str | None) -> None:
        """Refuse a name that no score of this task has."""
        known = ["loss", *cls.score_names]
        if metric is not None and cls.score_names and metric not in known:
            raise ConfigError(f"unknown train.metric={metric}; {nearest(metric, known)}")

    # --- settings that fit the data and the time ---

    @classmethod
    def facts(cls, dataset: AnyDataset) -> DataFacts:
        """What `recipe` needs to know of the data."""
        return DataFacts(len(list(dataset.train)), find_reader(cls.data_kind).unit)

    @classmethod
    def default_minutes(cls, facts: DataFacts) -> float:  # noqa: ARG003
        """How long to train where nobody says."""
        return 5.0

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:  # noqa: ARG003
        """The settings for this amount of data and time."""
        return {}

    # --- its data, loss and scores ---

    @abstractmethod
    def __init__(self, config: Config[ModelT], workspace: Workspace):
        """Read the data and prepare everything for training."""

    def use_full_evaluation(self) -> None:
        """From now on score every validation example, with the configured beam width: for the last evaluation."""
        self.max_scored, self.beam_width = None, self.config.train.beam

    def full_evaluation_cost(self) -> float:
        """How many times as long the last evaluation takes as the others."""
        return 1.0

    def finish(self, model: nn.Module) -> Mapping[str, Tensor]:
        """After the last step: the tensors of the model, by name, that are solved for and not learned in steps.

        Every process of the `share` must call it.
        """
        return {}

    @abstractmethod
    def cursor(self) -> Cursor:
        """Training batches, epoch after epoch."""

    @abstractmethod
    def batch(self, examples: Examples) -> Batch:
        """The tensors of some training examples."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and the number of tokens or examples that it is the sum of."""

    def scheduled_sampling(self, model: nn.Module, batch: Batch, share: float) -> Batch:
        """The batch with a share of the model's input replaced by its own predictions (student forcing)."""
        raise ConfigError(f"train.sampling={share:g}: {self.config.task} does not generate text, so it has no input")

    @abstractmethod
    def validation(self) -> Iterator[Batch]:
        """The batches of the validation part that are this process's `share`, always the same."""

    def scores(self, model: nn.Module) -> tuple[tuple[Score, ...], str]:
        """What people report for this task, and a sample of the output."""
        return (), ""

    def predictions(self, model: nn.Module) -> tuple[list[int], list[int]] | None:
        """Of a task that chooses labels: the predicted and the right ones of the validation part, as numbers."""
        return None

    def confusion(self) -> dict[str, Any] | None:
        """Of a task that chooses labels: `labels`, and `counts` (right, predicted) of the last evaluation."""
        return None

    def example(self) -> PreparedInput | None:
        """The validation example whose attention is logged at each evaluation; None for models without attention."""
        return None

    @classmethod
    def card_rows(cls, config: AnyConfig) -> Iterator[tuple[str, str]]:  # noqa: ARG003
        """Rows that the card of a model has besides the usual ones."""
        return iter(())

    def evaluate(self, model: nn.Module, device: torch.device) -> Evaluation:
        """Loss, scores and a sample of the weights as they are; every process of the `share` must call it."""
        training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                parts = [self.loss(model, to_device(batch, device)) for batch in self.validation()]
                sums = [torch.stack(each).double().sum().cpu() for each in zip(*parts, strict=True)] or torch.zeros(2)
                total, count, batches = self.share.all_reduce(torch.tensor([*sums, len(parts)]).double()).tolist()
                if not batches:
                    raise DataError("leaves no example to validate with", path=self.config.data.path)
                scores, sample = self.scores(model)
            return Evaluation(total / max(count, 1.0), scores, sample)
        finally:
            model.train(training)


@cache
def _config_type(task: type[Task[Any]]) -> type[Config[Any]]:
    """The configuration whose `model` section is that of one task."""
    fields: Any = {
        "task": (Literal[task.name], Field(task.name, description="the task")),
        "model": (task.model_type, Field(default_factory=task.model_type)),
    }
    return create_model(f"{task.__name__}Config", __base__=Config[task.model_type], **fields)  # type: ignore[name-defined]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move the tensors to where the model is."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def device_of(model: nn.Module) -> torch.device:
    """The device that a model computes on."""
    return next(model.parameters()).device


# --- data and tokenizer, as most tasks get them ---


def read_dataset(config: AnyConfig, kind: str, workspace: Workspace) -> AnyDataset:
    """The data of a run, split; data of another kind is refused, but every kind can be read as text."""
    if workspace.dataset is not None:
        return workspace.dataset
    workspace.on_phase("reading the data")
    data = config.data
    sources = resolve(data.path, ReadOptions(data.encoding, data.source, data.target))
    chosen = chosen_reader(data.kind, kind, sources)
    found = [detect(source, chosen) for source in sources]
    for source, each in zip(sources, found, strict=True) if kind != "text" and not (data.source or data.target) else ():
        if find_reader(each.kind).example_kind != kind:
            raise DataError(
                f"looks like {each.kind} ({each.reason}), and {config.task} needs {kind}; "
                f"if it is {kind} all the same, say data.kind={kind}",
                path=source.name,
            )
    dataset = read_sources(sources, found, kind, 0 if workspace.whole else data.validation)
    if not workspace.whole:
        return dataset
    held_out = list(dataset.validation)
    everything = [*dataset.train, *held_out] if held_out else dataset.train
    return replace(dataset, train=everything, validation=everything)


def train_tokenizer(config: AnyConfig, workspace: Workspace, texts: Iterable[str]) -> Tokenizer:
    """The run's tokenizer, or a new one trained on the training texts."""
    tokenizer = workspace.tokenizer
    if tokenizer is None:
        workspace.on_phase("training the tokenizer")
        settings, counted = config.tokenizer, workspace.counted(texts)
        tokenizer = Tokenizer.train(settings.kind, counted, size=settings.size, lowercase=settings.lowercase)
    workspace.on_phase("encoding the texts")  # what every task does next
    return tokenizer
