"""From a configuration to a finished run directory; and from an unfinished one to a finished one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from clearhead.config import AnyConfig
from clearhead.errors import ClearheadError
from clearhead.files import write_text
from clearhead.models.build import recompute_blocks
from clearhead.run import Run
from clearhead.tasks import TASKS, run_config
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.tasks.base.task import Evaluation, Task, Workspace
from clearhead.text import Tokenizer
from clearhead.train import checkpoints
from clearhead.train.card import write_card
from clearhead.train.device import Device
from clearhead.train.distributed import ProcessGroup
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.transfer import start_run, start_tokenizer, transfer


def run_training(config: AnyConfig, out: Path, command: str, callbacks: Callbacks | None = None) -> Evaluation:
    """Train a new model into `out`; a process that torchrun restarts resumes what is there."""
    with ProcessGroup.join(config.train) as group:
        with _remove_on_failure(out) if group.is_main else nullcontext():
            run = group.on_main(lambda: _open_or_create(out, config) if group.restarted else Run.create(out, config))
            trainer = make_trainer(run, config, callbacks or Callbacks(), group)
            group.on_main(lambda: write_text(run.command, command))
        if group.restarted:
            trainer.restore()
        return _finish(run, trainer)


def resume(path: Path, callbacks: Callbacks | None = None) -> Evaluation:
    """Resume from the newest whole checkpoint, or from the beginning if there is none yet."""
    run = Run.open(path)
    config = run_config(run)
    with ProcessGroup.join(config.train) as group:
        trainer = make_trainer(run, config, callbacks or Callbacks(), group)
        trainer.restore()
        return _finish(run, trainer)


@contextmanager
def _remove_on_failure(out: Path) -> Iterator[None]:
    """An error in the settings or the data leaves no new folder behind."""
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    empty = out.is_dir() and not any(out.iterdir())
    try:
        yield
    except ClearheadError:
        if new or empty:
            shutil.rmtree(out, ignore_errors=True)
        with suppress(OSError):  # another run may be in it by now
            for folder in new[1:]:
                folder.rmdir()
        raise


def make_trainer(run: Run, config: AnyConfig, callbacks: Callbacks, group: ProcessGroup | None = None) -> Trainer:
    """The trainer of a run, at step 0."""
    group = group or ProcessGroup()
    callbacks = callbacks if group.is_main else Callbacks()
    trained = _trained(run, config)
    task = group.main_first(lambda: _make_task(run, config, trained))
    for note in task.notes:
        callbacks.on_note(note)
    device = Device.choose(config.train, callbacks.on_note, group.local_rank if group.world_size > 1 else None)
    torch.manual_seed(config.train.seed)
    model = build_network(config, task.meta.sizes)
    if trained is not None:
        for note in transfer(trained, model, task):
            callbacks.on_note(note)
    if config.train.recompute:
        recompute_blocks(model)
    return Trainer(task, model, run, config.train, device, callbacks, group)


def _open_or_create(out: Path, config: AnyConfig) -> Run:
    """The run directory if this configuration began it, or a new one."""
    begun = (out / "config.yaml").is_file() and run_config(Run(out)) == config
    return Run.open(out) if begun else Run.create(out, config)


def _trained(run: Run, config: AnyConfig) -> Run | None:
    """The run whose weights this one starts from; None once it has a checkpoint of its own."""
    if config.train.start_from is None or checkpoints.newest(run.checkpoints)[0] is not None:
        return None
    return start_run(config)


def _make_task(run: Run, config: AnyConfig, trained: Run | None) -> Task[Any]:
    """The task, with the run's tokenizer or a new one that is saved in the run."""
    tokenizer = _existing_tokenizer(run, config, trained)
    run.checkpoints.mkdir(exist_ok=True)
    task = TASKS[config.task](config, Workspace(run.checkpoints, tokenizer))
    if task.tokenizer is not None and tokenizer is None:
        task.tokenizer.save(run.path / "tokenizer.json")
    return task


def _existing_tokenizer(run: Run, config: AnyConfig, trained: Run | None) -> Tokenizer | None:
    """The run's tokenizer, or that of the weights it starts from; None if one has to be trained."""
    tokenizer = run.load_tokenizer()
    if tokenizer is None and trained is not None:
        tokenizer = start_tokenizer(trained, config)
        if tokenizer is not None:
            tokenizer.save(run.path / "tokenizer.json")
    return tokenizer


def _finish(run: Run, trainer: Trainer) -> Evaluation:
    """Train to the end, and write the weights and the card."""
    found = trainer.train()
    with trainer.ema.applied():
        weights = trainer.group.gather_full(trainer.model.state_dict())

    def write() -> None:
        save_weights(run, trainer.task.config, weights, trainer.task.meta)
        write_card(run, trainer, found)

    trainer.group.on_main(write)
    return found
