"""The models of a service, each loaded once, under the name that clients use.

Names come from whoever starts the service: what a client sends is only looked up, and is never a path.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import load
from clearhead.decode import Settings, Steps
from clearhead.decode.prefixes import PrefixCache
from clearhead.errors import ConfigError, nearest
from clearhead.nn.positions import length_limit
from clearhead.serve.errors import RequestError
from clearhead.serve.metrics import Metrics
from clearhead.serve.security import Limits
from clearhead.serve.worker import STEP_WORK, Job, Worker, compute_together

if TYPE_CHECKING:
    from clearhead import Model


PAUSE, LONGEST_PAUSE = 0.004, 0.1  # seconds, for each other stream; and at most


class ServedModel:
    """One model under its name, and the thread that computes for it."""

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics):
        self.name, self.model, self.limits, self.metrics = name, model, limits, metrics
        self.loaded = int(time.time())
        self.streams = 0  # texts that are being sent as they come
        self.prefixes = PrefixCache(limits.prefixes)
        self.worker = Worker(name, limits, metrics)
        # Whether texts that begin at different times share a step: with native code they do.
        self.merges = model.verb == "generate" and hasattr(model.engines.stepper(), "merge")

    @cached_property
    def token_texts(self) -> list[str]:
        """Every token of the vocabulary as text."""
        return [piece.replace("▁", " ") for piece in self.model.tokenizer.pieces(range(len(self.model.tokenizer)))]

    @cached_property
    def context(self) -> int:
        """The maximum number of tokens of a prompt and what follows it."""
        return min(self.limits.context, length_limit(self.model.outline) or self.limits.context)

    @cached_property
    def window(self) -> int | None:
        """Tokens that a language model looks back at, also in a short text: so all texts can share a step."""
        found: int | None = self.model.window(sys.maxsize)
        return found

    def pause(self) -> float:
        """Seconds between two events of a stream: many streams send fewer and longer ones."""
        return min(PAUSE * (self.streams - 1), LONGEST_PAUSE)

    def require(self, verb: str, meaning: str = "") -> None:
        """Refuse what a model of another task does; `meaning` is the verb in a sentence."""
        if self.model.verb != verb:
            message = f"{self.name}: cannot {meaning or verb}: it is {self.model.description}"
            raise RequestError(400, "wrong_model", message, param="model")

    def translate(self, texts: Sequence[str], settings: Settings, costs: Sequence[int]) -> list[Job]:
        """The candidates of each text, the best first; `costs` are the tokens × beams that each may take."""

        def steps(texts: Sequence[str]) -> Steps[list[Any]]:
            return self.model.candidate_steps(texts, settings, work=STEP_WORK)

        def run_all(jobs: list[Job]) -> Iterator[None]:
            jobs[0].resolve((yield from steps(jobs[0].payload)))

        if settings.temperature:  # what is sampled depends on a text's place in the batch: those of others stay out
            whole = Job(object(), texts, run_all, cost=sum(costs))
            return self._submit([whole])
        return self._submit_alike(("translate", settings), texts, steps, costs)

    def predict(self, items: Sequence[Any]) -> list[Job]:
        """The answer to each item as JSON, with default settings."""

        def steps(items: list[Any]) -> Steps[list[Any]]:
            return self.model.predict_steps(items, work=STEP_WORK)

        least = STEP_WORK // 8 if self.model.generates else 0
        costs = [max(least, len(item) if isinstance(item, str) else 0) for item in items]
        return self._submit_alike("predict", items, steps, costs)

    def embed(self, rows: Sequence[Sequence[int]]) -> list[Job]:
        """A vector for each row of ids."""

        def steps(rows: list[Sequence[int]]) -> Steps[list[Any]]:
            yield from ()
            vectors: list[Any] = self.model.embed_ids(rows).tolist()
            return vectors

        return self._submit_alike("embed", rows, steps, list(map(len, rows)))

    def call(self, compute: Callable[[], Any]) -> list[Job]:
        """One function, called by itself in the model's thread, and given up when nobody waits for its result."""
        return self._submit([Job(object(), None, compute_together(lambda _: [compute()]))])

    def call_steps(self, steps: Steps[Any]) -> list[Job]:
        """A computation that pauses between steps, in the model's thread."""

        def run(jobs: list[Job]) -> Iterator[None]:
            jobs[0].resolve((yield from steps))

        return self._submit([Job(object(), None, run)])

    def _submit_alike(
        self,
        key: Hashable,
        items: Sequence[Any],
        steps: Callable[[list[Any]], Steps[list[Any]]],
        costs: Sequence[int],
    ) -> list[Job]:
        def run(jobs: list[Job]) -> Iterator[None]:
            found = yield from steps([job.payload for job in jobs])
            for job, answer in zip(jobs, found, strict=True):
                job.resolve(answer)

        return self._submit([Job(key, item, run, cost=cost) for item, cost in zip(items, costs, strict=True)])

    def _submit(self, jobs: list[Job]) -> list[Job]:
        self.worker.submit(jobs)
        return jobs


@dataclass(frozen=True)
class Service:
    """All models, the limits of requests, and the metrics."""

    models: dict[str, ServedModel]
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def load(
        cls,
        sources: Sequence[str],
        limits: Limits | None = None,
        quantise: str | None = None,
        cache_type: str | None = None,
    ) -> Service:
        """Load models, each a run directory or a name, or NAME=DIRECTORY to serve it under another name.

        With `quantise` the weights of all are rounded, as by `clearhead.load`; `cache_type` is how language models
        keep keys and values.
        """
        limits, metrics, models = limits or Limits(), Metrics(), dict[str, ServedModel]()
        for each in sources:
            given, path = _named(each)
            model = load(path, quantise=quantise, cache_type=cache_type)
            name = given or model.name
            if name in models:
                raise ConfigError(f"two models are called {name}; give one of them another name: NAME={path}")
            models[name] = ServedModel(name, model, limits, metrics)
        return cls(models, limits, metrics)

    def get(self, name: str) -> ServedModel:
        """The model with this name, or 404."""
        if name not in self.models:
            message = f"there is no model called {name[:60]!r}; {nearest(name[:60], self.models)}"
            raise RequestError(404, "model_not_found", message, param="model")
        return self.models[name]

    @property
    def ready(self) -> bool:
        """Whether every model answers."""
        return all(served.worker.ready for served in self.models.values())

    def close(self, seconds: float | None = None) -> None:
        """Finish all jobs that somebody waits for, then stop; with `seconds`, wait no longer than that for a model."""
        for served in self.models.values():
            served.worker.close(seconds)


def _named(source: str) -> tuple[str, str]:
    """Name and path of NAME=PATH; an existing directory with "=" in its name is a path."""
    name, sign, path = source.partition("=")
    return (name, path) if sign and not Path(source).is_dir() else ("", source)
