"""Clearhead: train, run, serve and look inside every transformer of the lectures.

    m = clearhead.load("en-es")                    # a run directory, or the name of a bundled model
    m.translate("we are eating bread")             # str; a list gives a list
    m.look("we are eating bread").heads(layer=2, head=1).save("head.svg")

    m = clearhead.train("translate", data="pairs.tsv", out="runs/mine")      # or a list, a DataFrame, a dataset
    clearhead.evaluate("runs/mine").scores

`load` and `train` return the predictor of the model's task; `Translator.load("en-es")` also says so to a type checker.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from clearhead.tasks.base.labels import Classification
    from clearhead.tasks.base.predictor import Predictor
    from clearhead.tasks.caption import Captioner
    from clearhead.tasks.classify import Classifier
    from clearhead.tasks.embed import Embedder
    from clearhead.tasks.lm import LanguageModel
    from clearhead.tasks.masked_lm import MaskedLanguageModel
    from clearhead.tasks.tag import Tagger
    from clearhead.tasks.translate import Candidate, Translator
    from clearhead.tasks.vision import ImageClassifier
    from clearhead.tasks.words import WordVectors
    from clearhead.train.evaluate import Detailed
    from clearhead.train.loop import Callbacks

    class Model(  # type: ignore[misc]  # a model has the verb of one task: which, only its files know
        Translator,
        LanguageModel,
        MaskedLanguageModel,
        ImageClassifier,
        Classifier,
        Tagger,
        Captioner,
        Embedder,
        WordVectors,
    ):
        """What `load` returns, as far as a type checker can know: a predictor with the verb of its task."""


__version__ = "0.1.0"

_MODULES = {  # imported on first use, since they need torch
    "Candidate": "translate",
    "Captioner": "caption",
    "Classification": "base.labels",
    "Classifier": "classify",
    "Embedder": "embed",
    "ImageClassifier": "vision",
    "LanguageModel": "lm",
    "MaskedLanguageModel": "masked_lm",
    "Predictor": "base.predictor",
    "Tagger": "tag",
    "Translator": "translate",
    "WordVectors": "words",
}
__all__ = [
    "Candidate",
    "Captioner",
    "Classification",
    "Classifier",
    "Embedder",
    "ImageClassifier",
    "LanguageModel",
    "MaskedLanguageModel",
    "Predictor",
    "Tagger",
    "Translator",
    "WordVectors",
    "__version__",
    "evaluate",
    "load",
    "train",
]


def load(
    path: str | Path,
    engine: str = "auto",
    int8: bool = False,
    *,
    quantise: str | None = None,
    cache_type: str | None = None,
    model: object = None,
    tokenizer: object = None,
) -> Model:
    """Load a trained model, from its run directory or by its name.

    `engine` computes the steps of generation: auto, torch, compiled, exact or ct2. With `quantise` its weights are
    rounded to q8 (also `int8`) or, of a language model, to q4, for less memory and time and a little less quality.
    `cache_type` is how a language model keeps the keys and values of a text: f16 or f32, or int8 with such weights.
    A network or a tokenizer of your own class, with which the model was trained, is given again.
    """
    with _without_garbage_collection():
        from clearhead.tasks.base import predictor
        from clearhead.tasks.base.own import Own

        return predictor.load(path, engine, int8, Own.of(model, tokenizer), quantise, cache_type)  # type: ignore[return-value]


def train(
    task: str,
    data: object = None,
    out: str | Path | None = None,
    *,
    size: str | None = None,
    callbacks: Callbacks | None = None,
    progress: bool = True,
    model: object = None,
    tokenizer: object = None,
    **settings: object,
) -> Model:
    """Train a model on a path or on Python data, and load it; `clearhead.train.api` says what `data` may be.

    `model` is a network of your own class, `tokenizer` an object with `encode` and `decode`. Settings are named as on
    the command line, `**{"train.max_minutes": 5}`, or by their last part, `max_minutes=5`.
    """
    from clearhead.train import api

    own = {"model": model, "tokenizer": tokenizer}
    return api.train(task, data, out, size=size, callbacks=callbacks, progress=progress, **own, **settings)  # type: ignore[return-value]


def evaluate(run: str | Path, data: Any = None, *, model: object = None, tokenizer: object = None) -> Detailed:
    """The scores of a model on its validation part, or on all of another dataset: all that `train` takes as data."""
    from clearhead.run import find
    from clearhead.tasks.base.own import Own
    from clearhead.train import evaluate as evaluation

    return evaluation.evaluate(find(run), data, own=Own.of(model, tokenizer))


_has_frozen_objects = False


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """For imports and loading: what they make stays, and to search it for garbage takes as long as a translation."""
    global _has_frozen_objects
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Frozen objects of the program stay so. They are counted one by one: only until some were found.
            _has_frozen_objects = _has_frozen_objects or gc.get_freeze_count() > 0
            if not _has_frozen_objects:
                gc.freeze()
                gc.unfreeze()  # all objects are in the oldest generation now: the next collection passes over them
            gc.enable()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(f"clearhead.tasks.{_MODULES[name]}"), name)
