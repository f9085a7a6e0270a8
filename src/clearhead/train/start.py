"""From a configuration to a finished run directory; and from an unfinished one to a finished one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch

from clearhead.config import Config
from clearhead.errors import ClearheadError
from clearhead.files import write_text
from clearhead.models.assemble import recompute_blocks
from clearhead.models.build import build
from clearhead.run import Run
from clearhead.text import Tokenizer
from clearhead.train import checkpoints
from clearhead.train.card import write_card
from clearhead.train.device import Device
from clearhead.train.distributed import ProcessGroup
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.task import Evaluation, Task, Workspace
from clearhead.train.tasks import TASKS
from clearhead.train.transfer import start_run, start_tokenizer, transfer


def begin(config: Config, out: Path, command: str, callbacks: Callbacks | None = None) -> Evaluation:
    """Train a new model into `out`; whoever is restarted by torchrun goes on with what is there."""
    with ProcessGroup.join(config.train) as group:
        with _nothing_left_of(out) if group.is_main else nullcontext():
            run = group.on_main(lambda: _own(out, config) if group.restarted else Run.create(out, config))
            trainer = make_trainer(run, config, callbacks or Callbacks(), group)
            group.on_main(lambda: write_text(run.command, command))
        if group.restarted:
            trainer.restore()
        return _finish(run, trainer)


def resume(path: Path, callbacks: Callbacks | None = None) -> Evaluation:
    """Go on from the newest whole checkpoint, or from the beginning if there is none yet."""
    run = Run.open(path)
    with ProcessGroup.join(run.config.train) as group:
        trainer = make_trainer(run, run.config, callbacks or Callbacks(), group)
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


def make_trainer(run: Run, config: Config, callbacks: Callbacks, group: ProcessGroup | None = None) -> Trainer:
    """Everything that a run needs, at step 0."""
    group = group or ProcessGroup()
    callbacks = callbacks if group.is_main else Callbacks()
    trained = _trained(run, config)
    task = group.main_first(lambda: _make_task(run, config, trained))
    for note in task.notes:
        callbacks.on_note(note)
    device = Device.choose(config.train, callbacks.on_note, group.local_rank if group.world_size > 1 else None)
    torch.manual_seed(config.train.seed)
    model = build(config, task.meta.sizes)
    if trained is not None:
        for note in transfer(trained, model, task):
            callbacks.on_note(note)
    if config.train.recompute:
        recompute_blocks(model)
    return Trainer(task, model, run, config.train, device, callbacks, group)


def _own(out: Path, config: Config) -> Run:
    """The run that this very configuration has begun, or a new one."""
    begun = (out / "config.yaml").is_file() and Run.open(out).config == config
    return Run.open(out) if begun else Run.create(out, config)


def _trained(run: Run, config: Config) -> Run | None:
    """The run whose weights this one begins with; where there is a checkpoint, it has begun already."""
    if config.train.start_from is None or checkpoints.newest(run.checkpoints)[0] is not None:
        return None
    return start_run(config)


def _make_task(run: Run, config: Config, trained: Run | None) -> Task:
    """The task, with the run's tokenizer or one that the run keeps from now on."""
    tokenizer = _settled_tokenizer(run, config, trained)
    run.checkpoints.mkdir(exist_ok=True)
    task = TASKS[config.task](config, Workspace(run.checkpoints, tokenizer))
    if task.tokenizer is not None and tokenizer is None:
        task.tokenizer.save(run.path / "tokenizer.json")
    return task


def _settled_tokenizer(run: Run, config: Config, trained: Run | None) -> Tokenizer | None:
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
    with trainer.ema.applied():
        weights = trainer.group.gather_full(trainer.model.state_dict())

    def leave() -> None:
        run.save_model(weights, trainer.task.meta)
        write_card(run, trainer, found)

    trainer.group.on_main(leave)
    return found
