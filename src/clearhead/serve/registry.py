"""The models of a service, each loaded once, under the name that clients use.

Names come from whoever starts the service: what a client sends is only looked up, and is never a path.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import load
from clearhead.decode import Settings
from clearhead.engines.engine import COMPILE_MIN_TEXTS
from clearhead.errors import ConfigError, nearest
from clearhead.nn.positions import length_limit
from clearhead.serve.errors import RequestError
from clearhead.serve.metrics import Metrics
from clearhead.serve.security import Limits
from clearhead.serve.worker import Job, Worker, compute_together

if TYPE_CHECKING:
    from clearhead import Model


class ServedModel:
    """One model under its name, and the thread that computes for it."""

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics):
        self.name, self.model, self.limits, self.metrics = name, model, limits, metrics
        self.loaded = int(time.time())
        self.worker = Worker(name, limits, metrics)
        if model.verb == "generate":
            self.merges  # noqa: B018 - compiles native code, before the first request

    @cached_property
    def token_texts(self) -> list[str]:
        """Every token of the vocabulary as text."""
        return [piece.replace("▁", " ") for piece in self.model.tokenizer.pieces(range(len(self.model.tokenizer)))]

    @property
    def context(self) -> int:
        """The maximum number of tokens of a prompt and what follows it."""
        return min(self.limits.context, length_limit(self.model.network) or self.limits.context)

    @cached_property
    def window(self) -> int | None:
        """Tokens that a language model looks back at. A shorter text sees all of its own: so all texts can share a step."""
        found: int | None = self.model.window(sys.maxsize)
        return found

    @cached_property
    def merges(self) -> bool:
        """Whether texts that were begun at different times are generated in one step."""
        return hasattr(self.model.engines.stepper(COMPILE_MIN_TEXTS), "merge")

    def require(self, verb: str, meaning: str = "") -> None:
        """Refuse what a model of another task does; `meaning` is the verb in a sentence."""
        if self.model.verb != verb:
            message = f"{self.name}: cannot {meaning or verb}: it is {self.model.description}"
            raise RequestError(400, "wrong_model", message)

    def translate(self, texts: Sequence[str], settings: Settings) -> list[Job]:
        """The candidates of each text, the best first."""
        return self._submit(("translate", settings), texts, lambda texts: self.model.candidates(texts, settings))

    def predict(self, items: Sequence[Any]) -> list[Job]:
        """The answer to each item as JSON, with default settings."""
        return self._submit("predict", items, self.model.predict_batch)

    def embed(self, rows: Sequence[Sequence[int]]) -> list[Job]:
        """A vector for each row of ids."""
        return self._submit("embed", rows, lambda rows: self.model.embed_ids(rows).tolist())

    def call(self, compute: Callable[[], Any]) -> list[Job]:
        """One function, called by itself in the model's thread."""
        return self._submit(object(), [None], lambda _: [compute()])

    def _submit(self, key: Hashable, items: Sequence[Any], compute: Callable[[list[Any]], Sequence[Any]]) -> list[Job]:
        jobs = [Job(key, item, compute_together(compute)) for item in items]
        self.worker.submit(jobs)
        return jobs


@dataclass(frozen=True)
class Service:
    """All models, the limits of requests, and the metrics."""

    models: dict[str, ServedModel]
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def load(cls, sources: Sequence[str], limits: Limits | None = None) -> Service:
        """Load models, each a run directory or a name, or NAME=DIRECTORY to serve it under another name."""
        limits, metrics, models = limits or Limits(), Metrics(), dict[str, ServedModel]()
        for each in sources:
            given, path = _named(each)
            model = load(path)
            name = given or model.name
            if name in models:
                raise ConfigError(f"two models are called {name}; give one of them another name: NAME={path}")
            models[name] = ServedModel(name, model, limits, metrics)
        return cls(models, limits, metrics)

    def get(self, name: str) -> ServedModel:
        """The model with this name, or 404."""
        if name not in self.models:
            message = f"there is no model called {name[:60]!r}; {nearest(name[:60], self.models)}"
            raise RequestError(404, "model_not_found", message)
        return self.models[name]

    def close(self) -> None:
        """Finish all jobs, then stop."""
        for served in self.models.values():
            served.worker.close()


def _named(source: str) -> tuple[str, str]:
    """Name and path of NAME=PATH; an existing directory with "=" in its name is a path."""
    name, sign, path = source.partition("=")
    return (name, path) if sign and not Path(source).is_dir() else ("", source)
