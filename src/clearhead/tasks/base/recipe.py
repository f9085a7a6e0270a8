"""Settings that fit the data and the time: what `clearhead train TASK` chooses where the user chose nothing.

Each task has a `recipe`, a function of the amount of data and of the budget. `benchmarks/tune` has what was tried for
them, and `tools/tune.py` tries more. Here is what all of them share: the budget, and which choices of the user take
which parts of the recipe with them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from clearhead.config import AnyConfig, assignment
from clearhead.models.config import ModelConfig
from clearhead.run import Run, find
from clearhead.tasks import TASKS, override_config, run_config

Recipe = Mapping[str, Any]  # dotted name -> value

GPU_CORES = 40  # a small GPU trains about as fast as so many cores
REFERENCE = 85e9  # float32 operations a second of the core for which the recipes were found, multiplying matrices
PRODUCT, PRODUCTS = 512, 9  # size and number of the matrix products that are measured: 20 ms
# What a recipe gives together: if the user chooses a name on the left, those on the right are the user's as well.
TOGETHER: Mapping[str, tuple[str, ...]] = {
    "model.dim": ("model.heads", "model.inner"),
    "model.heads": ("model.dim", "model.inner"),
    "model.architecture": ("train.optimizer", "train.learning_rate", "train.matrix_rate", "model.layers"),
    "train.optimizer": ("train.learning_rate", "train.matrix_rate", "train.weight_decay"),
    "train.schedule": ("train.warmup",),
    "train.max_steps": ("train.max_minutes",),
    "train.evaluate_every": ("train.patience",),
    "tokenizer.kind": ("tokenizer.size", "tokenizer.lowercase", "model.length"),
}
SIZE = ("model.dim", "model.heads", "model.layers", "model.inner")  # what --size fixes
# What a model that starts from another one has in common with it.
SHAPE = tuple(f"model.{name}" for name in ModelConfig.model_fields)
FINE_TUNING: Recipe = {  # of a model that was trained on much more text, elsewhere
    "train.optimizer": "adamw",
    "train.learning_rate": 1e-4,
    "train.schedule": "linear",
    "train.warmup": 0.1,
    "train.weight_decay": 0.01,
    "train.average": 0.0,
    "data.augment": 0.0,
}


@dataclass(frozen=True)
class DataFacts:
    """What a recipe knows of the training data."""

    examples: int  # of running text: characters
    unit: str  # what they are, in the plural
    length: float = 0.0  # mean number of characters in an example
    word: float = 0.0  # mean number of characters between two spaces: much in a language that writes none
    labels: int = 0  # how many different ones there are
    image_size: int = 0  # the side of a square image; 0 if they have several sizes


# What every recipe of a Transformer has: Muon, and a rate that falls to zero with the time.
MUON: Recipe = {
    "model.bias": False,
    "train.optimizer": "muon",
    "train.learning_rate": 0.008,
    "train.schedule": "linear",
    "train.warmup": 0.02,
    "train.max_steps": None,
}

# What an adapter is trained with: its small matrices are learned by AdamW.
ADAPTER: Recipe = {"train.optimizer": "adamw", "train.learning_rate": 1e-3, "train.weight_decay": 0.0}


def shape(dim: int, layers: int, head: int = 32, widen: int = 2) -> Recipe:
    """The settings of `layers` blocks that are `dim` wide."""
    return {"model.dim": dim, "model.heads": dim // head, "model.layers": layers, "model.inner": widen * dim}


@dataclass(frozen=True)
class Budget:
    """The time of a training, and how much is computed in it."""

    minutes: float
    cores: int
    speed: float = 1.0  # of a core, compared with that for which the recipes were found

    @property
    def core_minutes(self) -> float:
        return self.minutes * self.cores

    @property
    def work(self) -> float:
        """The minutes that the core for which the recipes were found needs for as much."""
        return self.core_minutes * self.speed

    def __str__(self) -> str:
        cores = "one core" if self.cores == 1 else f"{self.cores} cores"
        return f"{self.minutes:g} minute{'s' * (self.minutes != 1)} on {cores}"


def cores() -> int:
    """How many processor cores train, in all processes of a torchrun."""
    if torch.cuda.is_available():
        return GPU_CORES
    return torch.get_num_threads() * int(os.environ.get("WORLD_SIZE", "1"))


def core_speed() -> float:
    """How fast a core multiplies matrices, compared with that for which the recipes were found.

    1 for a GPU, and in several processes, which must all choose the same.
    """
    if torch.cuda.is_available() or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return 1.0
    matrix, seconds = torch.ones(PRODUCT, PRODUCT), list[float]()
    for _ in range(PRODUCTS):
        began = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - began)
    return 2 * PRODUCT**3 / min(seconds) / REFERENCE / torch.get_num_threads()


def choose(config: AnyConfig, facts: DataFacts, given: Collection[str], size: str | None) -> tuple[AnyConfig, str]:
    """The configuration completed by the task's recipe, and a sentence that says what was chosen.

    `given` are the names of the settings that the user chose, `size` is the user's --size.
    """
    task = TASKS[config.task]
    minutes = config.train.max_minutes or task.default_minutes(facts)
    # Equal commands with a number of steps give equal runs.
    budget = Budget(minutes, cores(), 1.0 if "train.max_steps" in given else core_speed())
    fixed = {*given, *(name for chosen in given for name in TOGETHER.get(chosen, ())), *(SIZE if size else ())}
    recipe = {**task.recipe(facts, budget), "train.max_minutes": minutes}
    if "train.max_minutes" in given and "train.max_steps" not in given:
        recipe.setdefault("train.max_steps", None)
    if config.train.start_from is not None:
        recipe = {name: value for name, value in recipe.items() if not name.startswith(("model.", "tokenizer."))}
    if config.train.start_from is not None and was_imported(config.train.start_from):
        recipe |= FINE_TUNING
    if config.train.adapter is not None:
        recipe |= ADAPTER
    listed = _assignments(config, recipe, fixed)
    note = f"chosen for {facts.examples:,} {facts.unit} and {budget}: {' '.join(listed)}"
    if config.train.start_from is not None:
        listed += _assignments(config, _model_of(config.train.start_from, config.task), fixed)
        note += f"; the model has the shape of {config.train.start_from}"
    return override_config(config, listed), note


def _assignments(config: AnyConfig, recipe: Recipe, fixed: Collection[str]) -> list[str]:
    """What a recipe chooses of the settings that a task has and nobody fixed."""
    chosen = {name: value for name, value in recipe.items() if name not in fixed and _has(config, name)}
    return [assignment(name, value) for name, value in chosen.items()]


def _model_of(start_from: str, task: str) -> Recipe:
    """The shape of the model that training starts from; of one for the same task, its whole `model` section."""
    config = run_config(Run.open(find(start_from)))
    names = (f"model.{key}" for key in type(config.model).model_fields) if config.task == task else SHAPE
    values = {name: getattr(config.model, name.removeprefix("model."), None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def was_imported(start_from: str) -> bool:
    """Whether a model was trained elsewhere: its tokenizer says so."""
    tokenizer = Run.open(find(start_from)).load_tokenizer()
    return tokenizer is not None and bool(tokenizer.config)


def _has(config: AnyConfig, name: str) -> bool:
    section, _, key = name.partition(".")
    return key in type(getattr(config, section)).model_fields
