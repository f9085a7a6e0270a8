"""`clearhead train --dry-run`: parameters, memory and time of a training, measured on a few real steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from clearhead.config import AnyConfig
from clearhead.data.examples import AnyDataset
from clearhead.run import Run
from clearhead.train.loop import Callbacks, Step, Trainer
from clearhead.train.optimizers import optimizer_state
from clearhead.train.start import make_trainer

TIMED = 5  # most steps that are timed, after a first one that is not
SCORED = 64  # most examples that the timed evaluation scores
ENOUGH = 5.0  # seconds after which no more steps are timed


@dataclass(frozen=True)
class Estimate:
    """The cost of a training."""

    parameters: dict[str, int]  # by part
    memory: dict[str, int]  # bytes, by what for
    steps: int
    unit: str  # what is counted: tokens or examples
    per_step: float
    seconds_per_step: float
    evaluations: int
    evaluation_minutes: float  # of all evaluations
    preparation_minutes: float  # of reading, training the tokenizer and encoding
    max_minutes: float | None  # the time limit

    @property
    def minutes(self) -> float:
        """The time of the whole training."""
        needed = self.preparation_minutes + self.steps * self.seconds_per_step / 60 + self.evaluation_minutes
        return needed if self.max_minutes is None else min(needed, self.max_minutes)


def estimate(
    config: AnyConfig,
    note: Callable[[str], None] = lambda _text: None,
    dataset: AnyDataset | None = None,
    reading: float = 0.0,
) -> Estimate:
    """Run a few steps and an evaluation in a temporary folder.

    `dataset` is the data if it was read before, and `reading` are the seconds that this took.
    """
    steps: list[Step] = []
    start = time.perf_counter()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        callbacks = Callbacks(on_step=lambda step, _: steps.append(step), on_note=note)
        trainer = make_trainer(Run(Path(folder)), config, callbacks, dataset=dataset)
        preparation = reading + time.perf_counter() - start
        batches = trainer.cursor.forever()
        with kept_for_backward() as kept:
            trainer.update(list(islice(batches, 1)))
        while len(steps) <= TIMED and sum(step.seconds for step in steps[1:]) < ENOUGH:
            trainer.update(list(islice(batches, config.train.accumulate)))
        last_in_usual = trainer.task.full_evaluation_cost()  # the last evaluation takes as long as so many others
        trainer.task.max_scored = min(SCORED, trainer.task.max_scored or SCORED)
        start = time.perf_counter()
        trainer.task.evaluate(trainer.model, trainer.device.torch_device)
        last = (time.perf_counter() - start) * trainer.task.full_evaluation_cost()
    timed = steps[1:]
    seconds = sum(step.seconds for step in timed) / len(timed)
    return Estimate(
        parameters=parts_of(trainer.model),
        memory=_memory(trainer, kept),
        steps=(count := _steps(config, seconds)),
        evaluations=(evaluations := _evaluations(config, count)),
        evaluation_minutes=(last + (evaluations - 1) * last / last_in_usual) / 60,
        preparation_minutes=preparation / 60,
        max_minutes=config.train.max_minutes,
        unit=trainer.task.unit,
        per_step=sum(step.tokens for step in timed) / len(timed),
        seconds_per_step=seconds,
    )


def parts_of(model: nn.Module) -> dict[str, int]:
    """The number of parameters of each part of a model; shared ones count for the first."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = ".".join(name.split(".")[:2])  # encoder.tokens, encoder.stack
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def _steps(config: AnyConfig, seconds: float) -> int:
    """`max_steps`, or as many as fit into `max_minutes`."""
    limits = [config.train.max_steps] if config.train.max_steps is not None else []
    if config.train.max_minutes is not None:
        limits.append(round(60 * config.train.max_minutes / seconds))
    return min(limits)


def _evaluations(config: AnyConfig, steps: int) -> int:
    every = config.train.evaluate_every
    return config.train.evaluations if every is None else 1 + max(0, steps - 1) // every


def _memory(trainer: Trainer, kept: dict[int, int]) -> dict[str, int]:
    weights = list(trainer.model.parameters())
    own = {parameter.untyped_storage().data_ptr() for parameter in weights}
    memory = {
        "weights": _bytes(weights),
        "gradients": _bytes(weight for weight in weights if weight.requires_grad),
        "optimizer": _bytes(optimizer_state(trainer.optimizers).values()),
        "average": _bytes(trainer.ema.state_dict().values()),
        "activations": sum(size for place, size in kept.items() if place not in own),
    }
    return {name: size for name, size in memory.items() if size}


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@contextmanager
def kept_for_backward() -> Iterator[dict[int, int]]:
    """Bytes that the forward pass saves for the backward pass, by address, so that shared storage counts once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
