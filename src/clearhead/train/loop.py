"""The training loop, one for every task.

    for each step: learning rate, forward and backward over some batches, clipping, optimiser, moving average;
    every so often: evaluate, and write a checkpoint from which training resumes bit for bit; Ctrl-C writes one too.

Everything random in a step follows from (seed, step, rank), so no generator state has to be saved. Many processes run
this loop side by side, each on its rows of every batch and its share of every evaluation; `group` is where they
communicate.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import TrainConfig
from clearhead.engines.native.short import short_attention
from clearhead.errors import ClearheadError, RunError
from clearhead.files import append_line, keep_lines, read_tensors, sync, write_tensors
from clearhead.look.views.history import log_attention
from clearhead.run import Run
from clearhead.tasks.base.task import Batch, Evaluation, Examples, Task, to_device
from clearhead.train import checkpoints, sharded
from clearhead.train.adapters import Adapter
from clearhead.train.checkpoints import Checkpoint
from clearhead.train.device import Device
from clearhead.train.distributed import ProcessGroup, full_tensor, with_weights, without_weights
from clearhead.train.ema import EMA
from clearhead.train.optimizers import (
    load_optimizer_state,
    make_optimizers,
    optimizer_state,
    parameter_name,
    set_learning_rates,
)
from clearhead.train.schedules import Progress, factor

MIN_STEPS = 10  # between two evaluations that are evenly spread
NORM_EVERY = 10  # steps between two norms of the weights
RESERVE = 0.05  # of the time limit, for the last evaluation


@dataclass(frozen=True)
class Step:
    """Statistics of one training step."""

    step: int
    loss: float
    rate: float  # factor of the schedule
    tokens: int
    seconds: float
    unit: str = "tokens"  # what `tokens` counts: some tasks count examples


@dataclass
class Callbacks:
    """Training callbacks; no-ops by default."""

    on_step: Callable[[Step, Progress], None] = lambda _step, _progress: None
    on_evaluation: Callable[[int, Evaluation], None] = lambda _step, _evaluation: None
    on_note: Callable[[str], None] = lambda _text: None
    on_phase: Callable[[str], None] = lambda _text: None  # what takes time beside the steps: reading, evaluating …
    on_progress: Callable[[int, int | None], None] = lambda _done, _total: None  # of a phase, where it can be counted


@dataclass
class Trainer:
    """A model in training, and all the state that a checkpoint must hold."""

    task: Task[Any]
    model: nn.Module
    run: Run
    config: TrainConfig
    device: Device
    callbacks: Callbacks = field(default_factory=Callbacks)
    group: ProcessGroup = field(default_factory=ProcessGroup)
    adapter: Adapter | None = None  # if the model is an adapter and its frozen base
    step: int = 0
    best: float = float("-inf")  # of `metric`, negated where lower is better
    waited: int = 0  # evaluations since the best one
    evaluations: int = 0  # of those that are evenly spread
    evaluated: int = 0  # the step of the last evaluation
    training_seconds: float = 0.0  # of the steps alone, since the start of this process

    def __post_init__(self) -> None:
        self.task.share = self.group
        self.cursor = self.task.cursor()
        self.cursor.rows = self.group.rows if self.task.row_by_row else slice(None)
        self.progress = Progress(self.config.max_steps, self.config.max_minutes)
        self.progress.reserve = RESERVE * 60 * (self.config.max_minutes or 0)  # until an evaluation was timed
        self.metric = self.config.metric or self.task.metric
        self.model.to(self.device.torch_device)
        self.outline = without_weights(self.model) if self.group.sharded else None
        self.group.shard(self.model)
        self.forward = self.group.data_parallel(self.device.prepare(self.model), self.device.torch_device)
        self.weights = list(self.model.parameters())
        self.optimizers = make_optimizers(self.model, self.config)
        self.ema = EMA(self.model, self.config.average)
        self.metrics = self.run.path / "metrics.jsonl"
        self.best_weights = self.run.checkpoints / "best.safetensors"  # written if there is early stopping

    # --- training ---

    def train(self) -> Evaluation:
        """Train from the current step to the end, and return the final evaluation.

        A checkpoint is written before the evaluation of the same step, so a resumed run repeats that evaluation.
        """
        with short_attention(self.model):
            return self._train()

    def _train(self) -> Evaluation:
        batches = self.cursor.forever()
        try:
            while not (self.finished or self.should_stop_early):
                if self.evaluation_is_due():
                    self.evaluate()
                    if self.should_stop_early:
                        self.save()
                        break
                with uninterrupted():
                    self.update(list(islice(batches, self.config.accumulate)))
                if self.finished or self.step % self.config.checkpoint_every == 0:
                    self.save()
        except KeyboardInterrupt:
            self.save()
            raise
        if self.config.patience is not None and self.group.on_main(self.best_weights.exists):
            self._restore_best()
        if self.adapter is None:
            self._set_solved()
        self.task.use_full_evaluation()
        return self.evaluate(keep_best=False)  # nothing follows that could be worse

    def evaluation_is_due(self) -> bool:
        """Whether to evaluate before the next step: every so many steps, or evenly spread over the training."""
        if self.config.evaluate_every is not None:
            return self.step > self.evaluated and self.step % self.config.evaluate_every == 0
        due = min(int(self.config.evaluations * self.progress.share(self.step)), self.step // MIN_STEPS)
        if due <= self.evaluations:
            return False
        self.evaluations = due
        return True

    @property
    def finished(self) -> bool:
        return self.progress.share(self.step) >= 1

    @property
    def should_stop_early(self) -> bool:
        return self.config.patience is not None and self.waited >= self.config.patience

    def update(self, batches: list[Examples]) -> None:
        """One optimiser step on the mean loss over all tokens of `batches`, in all processes.

        Of each batch a process has only its rows, unless the task needs all of them to build a row.
        """
        start, config, group = time.perf_counter(), self.config, self.group
        self.device.seed(config.seed, self.step, group.rank)

        # The learning rate in the middle of this step.
        progress = self.progress.share(self.step + 0.5)
        rate = factor(config.schedule, progress, config.warmup, config.decay)
        set_learning_rates(self.optimizers, rate)

        # Forward and backward. With several batches or processes, the number of tokens is known only after all of them:
        # gradients of sums are accumulated and divided at the end.
        single = len(batches) == 1 and group.world_size == 1
        losses, counts = [], []
        for number, examples in enumerate(batches, start=1):
            rows, weight = self._local_batch(examples)
            batch = to_device(rows, self.device.torch_device)
            with group.gradient_sync(self.forward, enabled=number == len(batches)):
                with self.device.autocast():
                    if config.sampling:
                        batch = self.task.scheduled_sampling(self.forward, batch, config.sampling * progress)
                    loss, tokens = self.task.loss(self.forward, batch, config.label_smoothing)
                loss, tokens = loss * weight, tokens * weight
                (loss / tokens if single else loss).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            counts.append(tokens)
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        tokens = group.all_reduce(torch.stack(counts).sum())
        if not single:
            torch._foreach_div_(gradients, tokens)
        loss = group.all_reduce(torch.stack(losses).sum()) / tokens
        if not torch.isfinite(loss):
            raise RunError(self._diverged(float(loss)))

        # Clip the norm of all gradients together.
        norm = None
        if config.clip is not None:
            norm = full_tensor(nn.utils.get_total_norm(gradients))
            if norm > config.clip:
                torch._foreach_mul_(gradients, config.clip / norm)

        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.ema.update(self.step)
        self.step += 1

        # All processes count the seconds of the main one, so that they agree when the minutes are over.
        seconds = group.broadcast(time.perf_counter() - start)
        self.progress.elapsed += seconds
        self.training_seconds += seconds
        step = Step(self.step, float(loss), rate, int(tokens), seconds, self.task.unit)
        self._log_step(step, {**({} if norm is None else {"gradient_norm": float(norm)}), **self._weight_norm()})

    def _local_batch(self, examples: Examples) -> tuple[Batch, int]:
        """This process's rows of a batch and the weight 1; if there are none, a dummy row with weight 0."""
        if not self.task.row_by_row:
            return self.group.local_rows(self.task.batch(examples))
        return (self.task.batch(examples), 1) if len(examples) else (self.task.batch(self._first_example), 0)

    @cached_property
    def _first_example(self) -> Examples:
        """The one that a process computes in vain where a batch has no rows for it: all must call the model."""
        return self.cursor.read(self.cursor.plan(0)[0][:1])

    def _diverged(self, loss: float) -> str:
        kept = self._kept()
        return f"the loss became {loss} at step {self.step}; {kept}; try a lower train.learning_rate or train.clip"

    def _kept(self) -> str:
        """What the run directory still has after a failure."""
        saved = checkpoints.saved(self.run.checkpoints)
        return f"{saved[0].name} is kept" if saved else "no checkpoint was written yet"

    def _weight_norm(self) -> dict[str, float]:
        """The norm of all weights together, now and then: it changes slowly."""
        if self.step % NORM_EVERY:
            return {}
        return {"weight_norm": float(full_tensor(nn.utils.get_total_norm([each.detach() for each in self.weights])))}

    def _log_step(self, step: Step, norms: Mapping[str, float]) -> None:
        if self.group.is_main:
            record = {"step": step.step, "part": "train", "loss": step.loss, "rate": step.rate, "tokens": step.tokens}
            append_line(self.metrics, {**record, **norms})
            # Times differ in every run, so they have their own file; a step repeated after a resume is in it twice.
            append_line(self.run.path / "times.jsonl", {"step": step.step, "seconds": self.progress.elapsed})
        self.callbacks.on_step(step, self.progress)

    # --- evaluation ---

    def evaluate(self, keep_best: bool = True) -> Evaluation:
        """Evaluate the averaged weights on the validation part, and keep the best ones if there is early stopping."""
        start = time.perf_counter()
        self.callbacks.on_phase("evaluating")
        with self.ema.applied():
            mine = self._evaluate(self._full_model())
            evaluation = self.group.on_main(lambda: mine)  # all processes must decide alike
            value = evaluation.quality(self.metric)
            if keep_best and self.config.patience is not None and value > self.best:
                weights = self.group.gather_full(self.own_weights())
                self.group.on_main(lambda: write_tensors(self.best_weights, weights, {"step": str(self.step)}))
        self.waited = 0 if value > self.best else self.waited + 1
        self.best, self.evaluated = max(self.best, value), self.step
        if self.group.is_main:
            record = {"step": self.step, "part": "validation", **evaluation.record()}
            if (confusion := self.task.confusion()) is not None:
                record["confusion"] = confusion
            append_line(self.metrics, record)
        self.callbacks.on_evaluation(self.step, evaluation)
        seconds = self.group.broadcast(time.perf_counter() - start)
        self.progress.elapsed += seconds
        self.progress.reserve = seconds * self.task.full_evaluation_cost()
        return evaluation

    def _evaluate(self, model: nn.Module) -> Evaluation:
        evaluation = self.task.evaluate(model, self.device.torch_device)
        if self.group.is_main and (example := self.task.example()):
            log_attention(self.run.path / "attention", self.step, model, example)
        return evaluation

    def _full_model(self) -> nn.Module:
        """The model itself, or a full copy of a sharded one: generated texts differ in length between processes."""
        if self.outline is None:
            return self.model
        return with_weights(self.outline, self.model.state_dict(), self.device.torch_device)

    def _restore_best(self) -> None:
        weights, header = read_tensors(self.best_weights) if self.group.is_main else ({}, {})
        self._load_weights(self.group.scatter(weights, self.model.state_dict().get))
        self.ema.reset()
        what = "lowest loss" if self.metric == "loss" else f"best {self.metric}"
        if self.group.is_main:
            self.callbacks.on_note(f"kept the weights of step {header['step']}, which have the {what}")

    def _set_solved(self) -> None:
        """Set what the task solves for after the last step."""
        with self.ema.applied():
            solved = self.task.finish(self._full_model())
        if names := self.group.on_main(lambda: list(solved)):
            shards = self.group.scatter(solved if self.group.is_main else {}, self.model.state_dict().get)
            self.model.load_state_dict(shards, strict=False)
            self.ema.reset(names)

    # --- checkpoints ---

    def own_weights(self) -> dict[str, Tensor]:
        """The weights that this run keeps: all, or those that are not of an adapter's base."""
        weights = self.model.state_dict()
        return weights if self.adapter is None else self.adapter.own(weights)

    def _load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(weights, strict=self.adapter is None)

    def save(self) -> None:
        """Write a checkpoint: with fsdp every process its shards, if all write into the same folder."""
        tensors = {
            "weights": self.own_weights(),
            "optimizer": optimizer_state(self.optimizers),
            "average": self.ema.state_dict(),
        }
        state = {
            "cursor": self.cursor.state(),
            "elapsed": self.progress.elapsed,
            "best": {self.metric: self.best},
            "waited": self.waited,
            "evaluations": self.evaluations,
            "evaluated": self.evaluated,
            "metrics": self.metrics.stat().st_size if self.metrics.exists() else 0,
        }
        folder, keep, group = self.run.checkpoints, self.config.keep, self.group
        with self._save_errors():
            if group.is_main and self.metrics.exists():
                sync(self.metrics)  # the checkpoint says how long it is
            if group.sharded and group.same_folder:
                sharded.save(folder, Checkpoint(self.step, tensors, state), keep, group)
                return
            full = {name: group.gather_full(each) for name, each in tensors.items()}
            group.on_main(lambda: checkpoints.save(folder, Checkpoint(self.step, full, state), keep))

    @contextmanager
    def _save_errors(self) -> Iterator[None]:
        try:
            yield
        except RunError as problem:
            what = f"cannot save step {self.step}, and training stops ({problem})"
            raise RunError(f"{what}; {self._kept()}; make room, then `clearhead resume {self.run.path}`") from None

    def restore(self) -> bool:
        """Load the newest undamaged checkpoint; False if there is none."""
        damaged = self.group.on_main(lambda: checkpoints.set_aside(self.run.checkpoints))
        checkpoint, more = sharded.newest(self.run.checkpoints, self.group)
        for sentence in (*damaged, *more):
            self.callbacks.on_note(sentence)
        if checkpoint is None:
            self._truncate_metrics(0)
            return False
        try:
            self._load(checkpoint)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as problem:
            if isinstance(problem, ClearheadError):
                raise
            reason = str(problem).strip().splitlines()[-1].strip() if isinstance(problem, RuntimeError) else problem
            where = f"{self.run.checkpoints}: the checkpoint of step {checkpoint.step}"
            raise RunError(f"{where} does not fit config.yaml ({reason}); change config.yaml back") from None
        return True

    def _load(self, checkpoint: sharded.Found) -> None:
        own = self.model.state_dict()
        self._load_weights(checkpoint.shards("weights", own.get, self.group))
        optimizer = checkpoint.shards("optimizer", lambda name: own.get(parameter_name(name)), self.group)
        load_optimizer_state(self.optimizers, optimizer)
        self.ema.load_state_dict(checkpoint.shards("average", own.get, self.group))
        self.step, state = checkpoint.step, checkpoint.state
        self.cursor.restore(state["cursor"])
        self.progress.elapsed, self.waited = state["elapsed"], state["waited"]
        self.evaluations, self.evaluated = state.get("evaluations", 0), state.get("evaluated", 0)
        # Before version 2 the best value was the lowest loss.
        self.best = state["best"][self.metric] if isinstance(state["best"], dict) else -state["best"]
        self._truncate_metrics(state["metrics"])

    def _truncate_metrics(self, size: int) -> None:
        """Drop what was logged after the checkpoint: those steps are made and logged again."""
        missing = self.group.on_main(lambda: keep_lines(self.metrics, size))
        if missing:
            self.callbacks.on_note(f"{self.metrics} lacks {missing:,} bytes that were lost before step {self.step:,}")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C inside of this takes effect at its end, so that no step is left half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        raise KeyboardInterrupt
