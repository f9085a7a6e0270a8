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
from clearhead.models.assemble import recompute_blocks
from clearhead.run import Run
from clearhead.tasks import TASKS, run_config
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.tasks.base.task import Evaluation, Task, Workspace
from clearhead.text import Tokenizer
from clearhead.train import checkpoints
from clearhead.train.card import write_card
from clearhead.train.device import Device
from clearhead.train.distributed import Team
from clearhead.train.loop import Listener, Trainer
from clearhead.train.transfer import start_run, start_tokenizer, transfer


def begin(config: AnyConfig, out: Path, command: str, listener: Listener | None = None) -> Evaluation:
    """Train a new model into `out`; whoever is restarted by torchrun goes on with what is there."""
    with Team.join(config.train) as team:
        with _nothing_left_of(out) if team.leads else nullcontext():
            run = team.first(lambda: _own(out, config) if team.restarted else Run.create(out, config))
            trainer = make_trainer(run, config, listener or Listener(), team)
            team.first(lambda: write_text(run.command, command))
        if team.restarted:
            trainer.restore()
        return _finish(run, trainer)


def resume(path: Path, listener: Listener | None = None) -> Evaluation:
    """Go on from the newest whole checkpoint, or from the beginning if there is none yet."""
    run = Run.open(path)
    config = run_config(run)
    with Team.join(config.train) as team:
        trainer = make_trainer(run, config, listener or Listener(), team)
        trainer.restore()
        return _finish(run, trainer)


@contextmanager
def _nothing_left_of(out: Path) -> Iterator[None]:
    """A mistake in the settings or the data leaves no folder behind that was not there before."""
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


def make_trainer(run: Run, config: AnyConfig, listener: Listener, team: Team | None = None) -> Trainer:
    """Everything that a run needs, at step 0."""
    team = team or Team()
    listener = listener if team.leads else Listener()
    trained = _trained(run, config)
    task = team.first_then_all(lambda: _make_task(run, config, trained))
    for note in task.notes:
        listener.on_note(note)
    device = Device.choose(config.train, listener.on_note, team.local if team.world > 1 else None)
    torch.manual_seed(config.train.seed)
    model = build_network(config, task.meta.sizes)
    if trained is not None:
        for note in transfer(trained, model, task):
            listener.on_note(note)
    if config.train.recompute:
        recompute_blocks(model)
    return Trainer(task, model, run, config.train, device, listener, team)


def _own(out: Path, config: AnyConfig) -> Run:
    """The run that this very configuration has begun, or a new one."""
    begun = (out / "config.yaml").is_file() and run_config(Run(out)) == config
    return Run.open(out) if begun else Run.create(out, config)


def _trained(run: Run, config: AnyConfig) -> Run | None:
    """The run whose weights this one begins with; where there is a checkpoint, it has begun already."""
    if config.train.start_from is None or checkpoints.newest(run.checkpoints)[0] is not None:
        return None
    return start_run(config)


def _make_task(run: Run, config: AnyConfig, trained: Run | None) -> Task[Any]:
    """The task, with the run's tokenizer or one that the run keeps from now on."""
    tokenizer = _settled_tokenizer(run, config, trained)
    run.checkpoints.mkdir(exist_ok=True)
    task = TASKS[config.task](config, Workspace(run.checkpoints, tokenizer))
    if task.tokenizer is not None and tokenizer is None:
        task.tokenizer.save(run.path / "tokenizer.json")
    return task


def _settled_tokenizer(run: Run, config: AnyConfig, trained: Run | None) -> Tokenizer | None:
    """The run's own, or that of the weights it begins with; none where it has to learn one."""
    tokenizer = run.load_tokenizer()
    if tokenizer is None and trained is not None:
        tokenizer = start_tokenizer(trained, config)
        if tokenizer is not None:
            tokenizer.save(run.path / "tokenizer.json")
    return tokenizer


def _finish(run: Run, trainer: Trainer) -> Evaluation:
    """Train to the end, and leave the weights and the card."""
    found = trainer.train()
    with trainer.average.applied():
        weights = trainer.team.whole(trainer.model.state_dict())

    def leave() -> None:
        save_weights(run, trainer.task.config, weights, trainer.task.meta)
        write_card(run, trainer, found)

    trainer.team.first(leave)
    return found
