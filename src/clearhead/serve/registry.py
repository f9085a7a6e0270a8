"""The models of a service, each loaded once, under the name that clients use.

Names come from whoever starts the service: what a client sends is only looked up, and is never a path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from clearhead.api import ABILITIES, Model, load
from clearhead.decode import Settings
from clearhead.errors import ConfigError, nearest
from clearhead.serve.batching import Item, Worker, at_once
from clearhead.serve.errors import RequestError
from clearhead.serve.limits import Limits
from clearhead.serve.metrics import Metrics
from clearhead.serve.writing import Ask, Row, Vocabulary, write_together

NEAR = 32  # prompts whose lengths differ by less are read together


class Served:
    """One model under its name, and the thread that computes for it."""

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics):
        self.name, self.model, self.limits, self.metrics = name, model, limits, metrics
        self.loaded = int(time.time())
        self.worker = Worker(name, limits, metrics)

    @property
    def task(self) -> str:
        """What it was trained for."""
        return self.model.config.task

    @property
    def ability(self) -> str:
        """What it can do."""
        return ABILITIES[self.task]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Its tokens as texts."""
        return Vocabulary(self.model.tokenizer)

    @property
    def context(self) -> int:
        """Tokens that a prompt and what follows it may have."""
        config = self.model.config.model
        learned = getattr(config, "positions", None) == "learned"
        return min(self.limits.context, config.max_length) if learned else self.limits.context

    def must(self, ability: str) -> None:
        """Refuse what it was not trained for."""
        if self.ability != ability:
            sentence = f"{self.name} is a model for {self.task}: it can {self.ability}, not {ability}"
            raise RequestError(400, "wrong_model", sentence)

    def must_write(self) -> None:
        """Refuse to write where it cannot go on from a text."""
        self.must("generate")
        if getattr(self.model.config.model, "objective", "next") == "masked":
            raise RequestError(400, "wrong_model", f"{self.name} fills in masked tokens: it cannot go on from a text")

    # --- what is computed together ---

    def translate(self, texts: Sequence[str], settings: Settings) -> list[Item]:
        """The candidates of each text, the best first."""
        translator = self.model.translator(**vars(settings))
        return self._ask(("translate", settings), texts, translator.window)

    def classify(self, things: Sequence[Any]) -> list[Item]:
        """The label of each text or image."""
        return self._ask("classify", things, self.model.classify)

    def caption(self, images: Sequence[Any]) -> list[Item]:
        """A sentence about each image."""
        return self._ask("caption", images, lambda images: [self.model.caption(image) for image in images])

    def embed(self, rows: Sequence[Sequence[int]]) -> list[Item]:
        """A vector for each row of ids."""
        return self._ask("embed", rows, lambda rows: self.model.embed_ids(rows).tolist())

    def call(self, compute: Callable[[], Any]) -> list[Item]:
        """One thing that is computed by itself, in the model's own thread."""
        return self._ask(object(), [None], lambda _: [compute()])

    def write(self, asks: Sequence[Ask]) -> list[Item]:
        """Texts that go on from prompts; each ask is told of its own."""
        items = [Item(("write", len(ask.prompt) // NEAR), ask, self._write) for ask in asks]
        self.worker.submit(items)
        return items

    def _ask(self, key: Hashable, things: Sequence[Any], compute: Callable[[list[Any]], Sequence[Any]]) -> list[Item]:
        items = [Item(key, thing, at_once(compute)) for thing in things]
        self.worker.submit(items)
        return items

    def _write(self, items: list[Item]) -> Iterator[None]:
        rows = [self._row(item) for item in items]
        for _ in write_together(self.model.engines.stepper(), rows):
            for item, row in zip(items, rows, strict=True):
                if row.ended and item.wanted:
                    self.metrics.tokens.labels(model=self.name).inc(row.written)
                    item.settle(None)
            yield

    def _row(self, item: Item) -> Row:
        return Row(item.what, self.vocabulary, still_wanted=lambda: item.wanted)


@dataclass(frozen=True)
class Service:
    """All models, what is asked of them at most, and what they have done."""

    models: dict[str, Served]
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def load(cls, wanted: Sequence[str], limits: Limits | None = None) -> Service:
        """Each a run directory or a name, or NAME=DIRECTORY for another name."""
        limits, metrics, models = limits or Limits(), Metrics(), dict[str, Served]()
        for each in wanted:
            said, path = _named(each)
            model = load(path)
            name = said or model.name
            if name in models:
                raise ConfigError(f"two models are called {name}; call one of them otherwise: NAME={path}")
            models[name] = Served(name, model, limits, metrics)
        return cls(models, limits, metrics)

    def find(self, name: str) -> Served:
        """The model of a name."""
        if name not in self.models:
            shown = f"{name[:60]!r}"
            raise RequestError(
                404, "model_not_found", f"there is no model called {shown}; {nearest(name[:60], self.models)}"
            )
        return self.models[name]

    def close(self) -> None:
        """Finish what was begun, and stop."""
        for served in self.models.values():
            served.worker.close()


def _named(wanted: str) -> tuple[str, str]:
    """The name and the path of NAME=PATH; a directory whose own name has the sign has no other name."""
    name, sign, path = wanted.partition("=")
    return (name, path) if sign and not Path(wanted).is_dir() else ("", wanted)
