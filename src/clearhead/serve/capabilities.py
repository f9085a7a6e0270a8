"""What a loaded model can do, under the names that its task's predictor will have.

    predictor = predictor_of(served.model)
    predictor.verb, predictor.reads, predictor.generates
    predictor.predict("we are eating bread")       # {"translation": "Estamos comiendo pan."}

An adapter over `clearhead.api.Model`: the only place in `serve/` and `studio/` that knows the names of tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, overload

from torch import Tensor

from clearhead.api import ABILITIES, Model
from clearhead.bundled import Description, describe
from clearhead.errors import ClearheadError, ConfigError, nearest

Reads = Literal["text", "image", "words"]

CONTINUED = 40  # tokens that a language model adds by default
SAMPLE_CHARACTERS = 24  # of a text that a language model generated


@dataclass(frozen=True)
class TaskInfo:
    """A task that can be trained."""

    name: str
    title: str
    needs: str  # the data to train on
    reads: Reads
    upload: bool = True  # whether one uploaded file holds its data


TASKS = {
    each.name: each
    for each in (
        TaskInfo("translate", "A translator", "pairs of sentences", "text"),
        TaskInfo("lm", "A language model", "text", "text"),
        TaskInfo("classify", "A text classifier", "labelled texts", "text"),
        TaskInfo("tag", "A tagger", "labelled words", "text"),
        TaskInfo("vision", "An image classifier", "labelled images", "image", upload=False),
        TaskInfo("caption", "An image captioner", "images and sentences", "image", upload=False),
        TaskInfo("words", "Word vectors", "text", "words"),
    )
}
EXAMPLES = {
    "translate": (
        "She has a red car.",
        "The dog sees the cat.",
        "we are eating bread",
        "I'm not hungry yet.",
        "The animal didn't cross the street because it was too tired.",
    ),
    "classify": ("a warm, funny film", "two hours that I will never get back"),
    "tag": ("the old dog sees a small cat",),
}


def trainable_tasks() -> list[TaskInfo]:
    """Return every task that can be trained."""
    return list(TASKS.values())


def find_task(name: str) -> TaskInfo:
    """Return the task of a name, or raise an error that suggests the nearest."""
    if name not in TASKS:
        raise ConfigError(f"unknown task {name[:60]!r}; {nearest(name[:60], TASKS)}")
    return TASKS[name]


@dataclass(frozen=True)
class PreparedInput:
    """What a network needs to generate an answer to one input."""

    text: str
    sources: tuple[Tensor, ...]  # what the network reads before the prompt, each a batch of one
    prompt: list[int]
    stop: int | None
    max_tokens: int
    beam_width: int


class Predictor:
    """A loaded model behind the interface of a typed predictor."""

    def __init__(self, model: Model):
        self.model, self.name = model, model.name
        self.info = TASKS[model.config.task]
        self.task, self.title, self.reads = self.info.name, self.info.title, self.info.reads
        self.verb = ABILITIES[self.task]

    @property
    def generates(self) -> bool:
        return self.task in ("translate", "caption") or (self.task == "lm" and not self._masked)

    @property
    def _masked(self) -> bool:
        return getattr(self.model.config.model, "objective", "next") == "masked"

    def examples(self) -> list[str]:
        """Inputs to try first: one from the last evaluation, or those of the task."""
        sample = self._description.sample if self._description else ""
        if self.task == "translate":
            first = sample.partition(" → ")[0]
        elif self.task == "lm":
            start = sample[:SAMPLE_CHARACTERS]
            first = start.rpartition(" ")[0] or start
        else:
            first = ""
        return [first] if first else list(EXAMPLES.get(self.task, ()))

    def passage(self) -> str:
        """A longer text of the kind that the model was trained on."""
        return self._description.sample if self._description else ""

    @cached_property
    def _description(self) -> Description | None:
        try:
            return describe(self.model.run.path)
        except ClearheadError:  # no card
            return None

    def prepare(self, item: Any) -> PreparedInput:
        given = self.model._looker.writers[self.task](item)
        start = given.beginning
        return PreparedInput(
            given.about.text, start.sources, list(start.prompt), start.stop, given.longest, given.beams
        )

    def answer(self, item: Any, max_tokens: int | None = None) -> str:
        """Return the greedy answer as text."""
        match self.task:
            case "translate":
                return str(self.model.translate(item, beams=1))
            case "lm" if self._masked:
                return self.model.look(item).output
            case "lm":
                return str(self.model.generate(item, max_tokens=max_tokens or CONTINUED, temperature=0.0))
            case "caption":
                return self.model.caption(item)
            case "tag":
                return " ".join(tag for _, tag in self.model.tag(item))
            case "words":
                return self.model.neighbours(item, 1)[0][0]
            case _:
                return str(self.model.classify(item).label)

    @overload
    def predict(self, item: list[Any]) -> list[dict[str, Any]]: ...
    @overload
    def predict(self, item: Any) -> dict[str, Any]: ...
    def predict(self, item: Any) -> Any:
        """Return the JSON of the task's verb for one item; a list gives a list."""
        return self._predict(item) if isinstance(item, list) else self._predict([item])[0]

    def _predict(self, items: list[Any]) -> list[dict[str, Any]]:
        match self.task:
            case "translate":
                return [{"translation": text} for text in self.model.translate(items)]
            case "lm":
                return [{"text": self.answer(item)} for item in items]
            case "caption":
                return [{"caption": self.model.caption(item)} for item in items]
            case "tag":
                return [{"tags": self.model.tag(item) if item.strip() else []} for item in items]
            case "words":
                near = [self.model.neighbours(item) for item in items]
                return [{"found": [{"word": word, "near": value} for word, value in each]} for each in near]
            case _:
                found = self.model.classify(items)
                return [{"label": each.label, "probabilities": each.probabilities} for each in found]


def predictor_of(model: Model) -> Predictor:
    """Return the predictor of a loaded model."""
    return Predictor(model)
