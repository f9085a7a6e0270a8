"""The loop: one for every task.

    for each step: rate from the schedule, loss of some batches, gradient, update, average;
    now and then: evaluate, and write a checkpoint from which it goes on bit for bit.

Everything random in a step follows from (seed, step, process), so nothing but the step needs to be remembered.
Many processes run the same loop side by side, each on its rows of every batch; where they meet, there is `team`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import TrainConfig
from clearhead.errors import RunError
from clearhead.files import append_line, read_tensors, write_tensors
from clearhead.look.attention_log import log_attention
from clearhead.run import Run
from clearhead.tasks.base.task import Evaluation, Examples, Task, to_device
from clearhead.train import checkpoints
from clearhead.train.averaging import Average
from clearhead.train.checkpoints import Checkpoint
from clearhead.train.device import Device
from clearhead.train.distributed import Team, full
from clearhead.train.optimizers import load_optimizer_tensors, make_optimizers, optimizer_tensors, set_rates
from clearhead.train.schedules import Progress, factor

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Step:
    """What one update looked like."""

    step: int
    loss: float
    rate: float  # factor of the schedule
    tokens: int
    seconds: float


@dataclass
class Listener:
    """Who is told how it goes; by default nobody."""

    on_step: Callable[[Step, Progress], None] = lambda _step, _progress: None
    on_evaluation: Callable[[int, Evaluation], None] = lambda _step, _found: None
    on_note: Callable[[str], None] = lambda _text: None


@dataclass
class Trainer:
    """A model on its way, and all that must be saved for it to go on."""

    task: Task[Any]
    model: nn.Module
    run: Run
    config: TrainConfig
    device: Device
    listener: Listener = field(default_factory=Listener)
    team: Team = field(default_factory=Team)
    step: int = 0
    best: float = float("inf")
    waited: int = 0  # evaluations since the best

    def __post_init__(self) -> None:
        self.cursor = self.task.cursor()
        self.progress = Progress(self.config.max_steps, self.config.max_minutes)
        self.model.to(self.device.place)
        self.spare = self.team.spare(self.model)
        self.team.spread(self.model)
        self.forward = self.team.connect(self.device.prepare(self.model), self.device.place)
        self.weights = list(self.model.parameters())
        self.optimizers = make_optimizers(self.model, self.config)
        self.average = Average(self.model, self.config.average)

    def train(self) -> Evaluation:
        """From where it is to the end; the last evaluation is the result.

        A checkpoint is written before the evaluation of the same step, which is then made again after a resume.
        """
        batches = self.cursor.forever()
        while not self.used_up:
            if self.step and self.step % self.config.evaluate_every == 0:
                self.evaluate()
                if self.out_of_patience:
                    break
            self.update(list(islice(batches, self.config.accumulate)))
            if self.used_up or self.step % self.config.checkpoint_every == 0:
                self.save()
        if self.config.patience is not None:
            self._take_best()
        self.task.use_full_evaluation()
        return self.evaluate()

    @property
    def used_up(self) -> bool:
        """All steps are made, or the minutes are over."""
        return self.progress.share(self.step) >= 1

    @property
    def out_of_patience(self) -> bool:
        """Nothing has improved for as many evaluations as we wait."""
        return self.config.patience is not None and self.waited >= self.config.patience

    def update(self, batches: list[Examples]) -> None:
        """One step: loss and gradient of the batches, clipped, with the rate of the schedule."""
        began = time.perf_counter()
        self.device.seed(self.config.seed, self.step, self.team.rank)
        rate = self._set_rates()
        loss, count = self._gradients(batches)
        if not torch.isfinite(loss):
            raise RunError(self._diverged(float(loss)))
        self._clip()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update(self.step)
        self.step += 1
        seconds = self.team.agree(time.perf_counter() - began)
        self.progress.spend(seconds)
        self._log(Step(self.step, float(loss), rate, int(count), seconds))

    def _gradients(self, batches: list[Examples]) -> tuple[Tensor, Tensor]:
        """The gradient of the mean loss over all tokens of all batches; give that loss, and their number."""
        total, count, alone = [], [], len(batches) == 1 and self.team.world == 1
        for number, examples in enumerate(batches, start=1):
            with self.team.collecting(self.forward, last=number == len(batches)):
                loss, tokens = self._loss(examples)
                (loss / tokens if alone else loss).backward()  # type: ignore[no-untyped-call]
            total.append(loss.detach())
            count.append(tokens)
        tokens = self.team.sum(torch.stack(count).sum())
        if not alone:  # so far it is the gradient of the sum: only now is it known of how many
            torch._foreach_div_(self._all_gradients, tokens)
        return self.team.sum(torch.stack(total).sum()) / tokens, tokens

    def _clip(self) -> None:
        """Shorten the gradient, all weights together, if it is longer than allowed."""
        if self.config.clip is None:
            return
        norm = full(nn.utils.get_total_norm(self._all_gradients))
        if norm > self.config.clip:
            torch._foreach_mul_(self._all_gradients, self.config.clip / norm)

    @property
    def _all_gradients(self) -> list[Tensor]:
        return [weight.grad for weight in self.weights if weight.grad is not None]

    def _loss(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """The sum of the losses of this process's rows of a batch, and the number of their tokens."""
        batch, weight = self.team.share(self.task.batch(examples))
        batch = to_device(batch, self.device.place)
        with self.device.precision():
            if self.config.sampling:
                share = self.config.sampling * self.progress.share(self.step + 0.5)
                batch = self.task.scheduled_sampling(self.forward, batch, share)
            loss, tokens = self.task.loss(self.forward, batch, self.config.label_smoothing)
        return loss * weight, tokens * weight

    def _set_rates(self) -> float:
        config = self.config
        rate = factor(config.schedule, self.progress.share(self.step + 0.5), config.warmup, config.decay)
        set_rates(self.optimizers, rate)
        return rate

    def evaluate(self) -> Evaluation:
        """Measure the averaged weights, if there is an average, and remember whether they are the best so far."""
        with self.average.applied(), self._assembled() as model:
            found = self.team.first(lambda: self._measured(model))
            if self.config.patience is not None and found.loss < self.best:
                self._keep_best()
        self.waited = 0 if found.loss < self.best else self.waited + 1
        self.best = min(self.best, found.loss)
        self._write({"step": self.step, "part": "validation", **found.record()})
        self.listener.on_evaluation(self.step, found)
        return found

    def _measured(self, model: nn.Module) -> Evaluation:
        """The task's evaluation; where one example looks is kept beside it."""
        found = self.task.evaluate(model, self.device.place)
        if example := self.task.example():
            log_attention(self.run.path / "attention", self.step, model, example)
        return found

    def _keep_best(self) -> None:
        """Write the weights as they are beside the checkpoints: whoever stops early wants the best, not the last."""
        weights = self.team.whole(self.model.state_dict())
        self.team.first(lambda: write_tensors(self.best_weights, weights, {"step": str(self.step)}))

    def _take_best(self) -> None:
        """Go back to the weights of the best evaluation, if there was one."""
        if not self.best_weights.exists():
            return
        weights, header = read_tensors(self.best_weights)
        self.model.load_state_dict(self.team.parts(weights, self.model.state_dict()))
        self.average.restart()
        self.listener.on_note(f"the best weights by validation loss are those of step {header['step']}: they are kept")

    @property
    def best_weights(self) -> Path:
        """The file with the weights of the best evaluation, where there is patience."""
        return self.run.checkpoints / "best.safetensors"

    @contextmanager
    def _assembled(self) -> Iterator[nn.Module]:
        """A model in one piece: the model itself, or the spare one with its weights where it is in parts."""
        weights = self.team.whole(self.model.state_dict()) if self.team.shards else {}
        if self.spare is None:
            yield self.model
            return
        self.spare.load_state_dict(weights)
        yield self.spare.to(self.device.place)
        self.spare.cpu()

    def save(self) -> None:
        """Write a checkpoint."""
        tensors = {
            "weights": self.team.whole(self.model.state_dict()),
            "optimizer": self.team.whole(optimizer_tensors(self.optimizers)),
            "average": self.team.whole(self.average.tensors()),
        }
        state = {
            "cursor": self.cursor.state(),
            "elapsed": self.progress.elapsed,
            "best": self.best,
            "waited": self.waited,
            "metrics": self.metrics.stat().st_size if self.metrics.exists() else 0,
        }
        checkpoint = Checkpoint(self.step, tensors, state)
        self.team.first(lambda: checkpoints.save(self.run.checkpoints, checkpoint, self.config.keep))

    def restore(self) -> bool:
        """Go back to the newest whole checkpoint; False if there is none."""
        checkpoint, damaged = checkpoints.newest(self.run.checkpoints)
        for sentence in damaged:
            self.listener.on_note(sentence)
        if checkpoint is None:
            self._forget_metrics_after(0)
            return False
        weights, optimizer, average = (checkpoint.tensors.get(name, {}) for name in ("weights", "optimizer", "average"))
        self._put_back(weights, optimizer, average)
        self.step = checkpoint.step
        self.cursor.restore(checkpoint.state["cursor"])
        self.progress.elapsed = checkpoint.state["elapsed"]
        self.best, self.waited = checkpoint.state["best"], checkpoint.state["waited"]
        self._forget_metrics_after(checkpoint.state["metrics"])
        return True

    def _put_back(self, weights: Tensors, optimizer: Tensors, average: Tensors) -> None:
        """Each process takes its part of what was saved."""
        own = self.model.state_dict()
        self.model.load_state_dict(self.team.parts(weights, own))
        moments = {name: own.get(name.split(".", 2)[2]) for name in optimizer}  # 0.exp_avg.blocks.1.weight
        load_optimizer_tensors(self.optimizers, self.team.parts(optimizer, moments))
        self.average.load(self.team.parts(average, own))

    def _forget_metrics_after(self, size: int) -> None:
        """What was measured after a checkpoint will be measured again."""
        if self.team.leads:
            with self.metrics.open("a+b") as file:
                file.truncate(size)

    @property
    def metrics(self) -> Path:
        """The file with one line for each measurement."""
        return self.run.path / "metrics.jsonl"

    def _write(self, record: dict[str, Any], name: str = "metrics.jsonl") -> None:
        """One more measurement, written by the first process only."""
        if self.team.leads:
            append_line(self.run.path / name, record)

    def _log(self, step: Step) -> None:
        measured = {"loss": step.loss, "rate": step.rate, "tokens": step.tokens}
        self._write({"step": step.step, "part": "train", **measured})
        # Times are never the same twice, so they have a file of their own; a step made again is in it twice.
        self._write({"step": step.step, "seconds": self.progress.elapsed}, "times.jsonl")
        self.listener.on_step(step, self.progress)

    def _diverged(self, loss: float) -> str:
        saved = checkpoints.saved(self.run.checkpoints)
        where = f"{saved[0].name} is kept" if saved else "no checkpoint was written yet"
        return f"the loss became {loss} at step {self.step}; {where}; try a lower train.learning_rate or train.clip"
