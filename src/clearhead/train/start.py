"""From a configuration to a finished run directory; and from an unfinished one to a finished one."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.config import AnyConfig
from clearhead.data.check import faults_of
from clearhead.data.dataset import absolute, resolve
from clearhead.data.examples import AnyDataset
from clearhead.data.fingerprint import changed, fingerprints
from clearhead.data.source import ReadOptions
from clearhead.errors import ClearheadError, DataError, InUseError, RunError
from clearhead.files import write_text
from clearhead.models.build import recompute_blocks
from clearhead.run import Run
from clearhead.tasks import TASKS, default_config, load_config, override_config, run_config
from clearhead.tasks.base.adapters import BASE, find_base, write_base
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.tasks.base.own import NOTHING, Own
from clearhead.tasks.base.recipe import choose
from clearhead.tasks.base.task import Evaluation, Task, Workspace, read_dataset
from clearhead.text import Tokenizer
from clearhead.train.adapters import add_adapter
from clearhead.train.board import check_board
from clearhead.train.card import write_card
from clearhead.train.device import Device
from clearhead.train.distributed import ProcessGroup
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.parts import freeze
from clearhead.train.sharded import newest
from clearhead.train.transfer import start_run, start_tokenizer, taken_names, transfer

LISTED = 4  # most problems of the data that are printed
FEWEST = 4  # examples without which there is nothing to learn and to judge by
FEW_HELD_OUT = 20  # examples of which a score is a rough guess
SMALL = 400  # examples of which the usual 5 % would be fewer than these


@dataclass(frozen=True)
class Plan:
    """A configuration that is complete, and the data if it was read to complete it."""

    config: AnyConfig
    dataset: AnyDataset | None = None
    seconds: float = 0.0  # spent on reading


def load_settings(what: str, size: str | None = None) -> AnyConfig:
    """The configuration of a task's name, or of a RECIPE.yaml, before the user changes anything."""
    return load_config(what) if is_recipe(what) else default_config(what, size or "small")


def is_recipe(what: str) -> bool:
    """Whether the user named a YAML file and not a task."""
    return what.endswith((".yaml", ".yml"))


def default_out(config: AnyConfig) -> Path:
    """Where a run goes if nobody says."""
    return Path("runs") / f"{config.task}-{time.strftime('%Y%m%d-%H%M%S')}"


def plan_run(
    what: str, config: AnyConfig, changes: Sequence[str], size: str | None = None, callbacks: Callbacks | None = None
) -> Plan:
    """The configuration with the user's changes, and for a task's name with everything else chosen for the data."""
    config = override_config(config, changes)
    check_settings(config)
    if is_recipe(what):
        return Plan(config)
    return plan_training(config, [change.partition("=")[0] for change in changes], size, callbacks)


def plan_training(
    config: AnyConfig, given: Collection[str], size: str | None = None, callbacks: Callbacks | None = None
) -> Plan:
    """Read the data, and choose every setting that the user did not give by the task's recipe."""
    start, callbacks = time.perf_counter(), callbacks or Callbacks()
    task = TASKS[config.task]
    workspace = Workspace(Path(), on_phase=callbacks.on_phase)
    dataset = read_dataset(config, task.data_kind, workspace)
    for note in data_notes(dataset):
        callbacks.on_note(note)
    if (count := example_count(dataset)) is not None and count < SMALL:
        config, dataset = hold_out_more(config, dataset, count, workspace)
        callbacks.on_note(few_note(dataset, count))
    config, note = choose(with_absolute_paths(config), task.facts(dataset), given, size)
    callbacks.on_note(note)
    return Plan(config, dataset, time.perf_counter() - start)


def remember_data(run: Run, config: AnyConfig) -> None:
    """Write down what the files of the data are, for `data_changes`."""
    if not run.data_files.exists():
        write_text(run.data_files, json.dumps(_data_files(run, config), indent=1))


def data_changes(run: Run, config: AnyConfig) -> list[str]:
    """Which files of the data are not what they were when the training began."""
    if not run.data_files.is_file():  # killed before it was written, or of an older version
        return []
    try:
        before = dict(json.loads(run.data_files.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise RunError(f"{run.data_files} is damaged; delete it to resume without comparing the data") from None
    return changed(before, _data_files(run, config))


def _data_files(run: Run, config: AnyConfig) -> dict[str, str]:
    data = config.data
    return fingerprints(resolve(data.path, ReadOptions(data.encoding, data.source, data.target)), run.path)


def hold_out_more(
    config: AnyConfig, dataset: AnyDataset, count: int, workspace: Workspace
) -> tuple[AnyConfig, AnyDataset]:
    """The configuration that holds out more of little data, and the data; too little is refused."""
    if count < FEWEST:
        few = f"has {count} example{'s' * (count != 1)}, and a training needs at least {FEWEST}"
        raise DataError(f"{few}; hundreds are a start", path=config.data.path)
    if config.data.validation is not None:
        return config, dataset
    config = override_config(config, [f"data.validation={min(0.2, FEW_HELD_OUT / count):g}"])
    return config, read_dataset(config, TASKS[config.task].data_kind, workspace)


def few_note(dataset: AnyDataset, count: int) -> str:
    """A sentence about how few examples there are to judge by."""
    held_out = len(list(dataset.validation))
    worth = f", so one of them is {1 / max(1, held_out):.0%} of a score" if held_out < FEW_HELD_OUT else ""
    return f"{held_out} of {count} examples are held out for validation{worth}"


def example_count(dataset: AnyDataset) -> int | None:
    """The number of examples; None for running text."""
    return None if dataset.kind == "text" else len(list(dataset.train)) + len(list(dataset.validation))


def check_settings(config: AnyConfig) -> None:
    """Refuse what could only fail later: a score that the task does not have, a board that is not installed."""
    TASKS[config.task].check_metric(config.train.metric)
    check_board(config.train)


def data_notes(dataset: AnyDataset) -> Iterator[str]:
    """What was read, and what looks wrong in it."""
    if dataset.columns:
        yield f"{dataset.origin}: {dataset.columns}"
    faults = faults_of(dataset)
    for fault in faults[:LISTED]:
        places = f" ({', '.join(fault.places[:3])}{', …' * (fault.count > 3)})" if fault.places else ""
        yield f"worth a look: {fault.count:,} × {fault.what}{places}"
    if len(faults) > LISTED:
        yield f"and {len(faults) - LISTED} more: clearhead data check {dataset.origin}"


def with_absolute_paths(config: AnyConfig) -> AnyConfig:
    """The configuration with paths to the data and to `train.start_from` that hold in every working directory."""
    changes, start = [f"data.path={absolute(config.data.path)}"], config.train.start_from
    if start is not None and Path(start).exists():  # the name of a bundled model stays
        changes.append(f"train.start_from={Path(start).absolute()}")
    return override_config(config, changes)


def run_training(
    config: AnyConfig,
    out: Path,
    command: str,
    callbacks: Callbacks | None = None,
    plan: Plan | None = None,
    own: Own = NOTHING,
) -> Evaluation:
    """Train a new model into `out`; a process that torchrun restarts resumes what is there.

    `plan` is where the configuration comes from, if the data was read for it; `own` has the user's own objects.
    """
    start = time.perf_counter() - (plan.seconds if plan else 0.0)
    config = with_absolute_paths(config)
    check_settings(config)
    with ProcessGroup.join(config.train) as group, ExitStack() as held:

        def begin() -> tuple[Run, bool]:
            if out.exists() and not out.is_dir():
                Run.create(out, config)  # says what is wrong
            held.enter_context(Run(out).training())
            return _open_or_create(out, config, group.restarted)

        with remove_on_failure(out) if group.is_main else nullcontext():
            run, begun = group.on_main(begin)
            group = group.with_folder(run.path)
            trainer = make_trainer(run, config, callbacks or Callbacks(), group, plan.dataset if plan else None, own)
            group.on_main(lambda: write_text(run.command, command))
            group.on_main(lambda: remember_data(run, config))
        if begun:
            trainer.restore()
        else:
            # Preparation is part of the time limit, but leaves half of it for the training.
            limit = 30 * (config.train.max_minutes or 0)
            trainer.progress.elapsed = min(limit, group.broadcast(time.perf_counter() - start))
        return _finish(run, trainer, own)


def resume(path: Path, callbacks: Callbacks | None = None, own: Own = NOTHING) -> Evaluation:
    """Resume from the newest whole checkpoint, or from the beginning if there is none yet."""
    run = Run.open(path)
    own.check(run)
    config = run_config(run)
    with ProcessGroup.join(config.train) as group, ExitStack() as held:
        callbacks = callbacks or Callbacks()
        group.on_main(lambda: held.enter_context(run.training()))
        changes = group.on_main(lambda: data_changes(run, config))
        trainer = make_trainer(run, config, callbacks, group.with_folder(run.path), own=own)
        try:
            found = trainer.restore()
        except (DataError, RunError) as problem:
            if not changes:
                raise
            raise RunError("; ".join([*changes[:LISTED], str(problem)])) from None
        if group.is_main:
            for change in changes[:LISTED]:
                callbacks.on_note(f"{change} since the training began: its result may be another")
        if group.is_main:
            place = f"continuing after step {trainer.step:,}" if found else "no step was saved: from the beginning"
            callbacks.on_note(place)
        return _finish(run, trainer, own)


@contextmanager
def remove_on_failure(out: Path) -> Iterator[None]:
    """An error in the settings or the data leaves no new folder behind; once training has begun, everything stays."""
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    empty = out.is_dir() and not any(out.iterdir())
    try:
        yield
    except InUseError:  # the folder is another's
        raise
    except ClearheadError:
        if (out / "metrics.jsonl").exists():
            raise
        if new or empty:
            shutil.rmtree(out, ignore_errors=True)
        with suppress(OSError):  # another run may be in it by now
            for folder in new[1:]:
                folder.rmdir()
        raise


def make_trainer(
    run: Run,
    config: AnyConfig,
    callbacks: Callbacks,
    group: ProcessGroup | None = None,
    dataset: AnyDataset | None = None,
    own: Own = NOTHING,
) -> Trainer:
    """The trainer of a run, at step 0."""
    group = group or ProcessGroup()
    callbacks = callbacks if group.is_main else Callbacks()
    trained = _trained(run, config, group)
    task = group.main_first(lambda: _make_task(run, config, trained, dataset, own, callbacks), run.path)
    for note in task.notes:
        callbacks.on_note(note)
    device = Device.choose(config.train, callbacks.on_note, group.local_rank if group.world_size > 1 else None)
    callbacks.on_phase("building the model")
    torch.manual_seed(config.train.seed)
    model = own.build(task.meta.sizes) or build_network(config, task.meta.sizes)
    group.on_main(lambda: own.write(run, model))
    for note in transfer(trained, model, task) if trained is not None else ():
        callbacks.on_note(note)
    adapter = None
    if config.train.adapter is not None:
        assert trained is not None
        adapter, note = add_adapter(model, config.train, taken_names(trained, model, task))
        callbacks.on_note(note)
    elif config.train.freeze:
        callbacks.on_note(freeze(model, config.train.freeze))
    if config.train.recompute:
        recompute_blocks(model)
    return Trainer(task, model, run, config.train, device, callbacks, group, adapter)


def _open_or_create(out: Path, config: AnyConfig, restarted: bool) -> tuple[Run, bool]:
    """The run directory, and whether it is one that this job of torchrun has begun; if not, it is new.

    torchrun counts no restart when a machine joins or leaves; the job's name (--rdzv-id) tells that it is the same one.
    """
    job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    mark = Run(out).checkpoints / "job"
    same_job = restarted or (job != "none" and mark.is_file() and mark.read_text(encoding="utf-8") == job)
    if same_job and (out / "config.yaml").is_file() and run_config(Run(out)) == config:
        return Run.open(out), True
    run = Run.create(out, config)
    if job != "none":
        mark.parent.mkdir(exist_ok=True)
        write_text(mark, job)
    return run, False


def _trained(run: Run, config: AnyConfig, group: ProcessGroup) -> Run | None:
    """The run whose weights this one starts from; None once it has a checkpoint of its own, unless it is an adapter."""
    if config.train.adapter is not None and (run.path / BASE).is_file():
        return find_base(run)
    if config.train.start_from is None:
        return None
    begun = group.on_main(lambda: newest(run.checkpoints, ProcessGroup())[0] is not None)
    return None if begun else start_run(config)


def _make_task(
    run: Run,
    config: AnyConfig,
    trained: Run | None,
    dataset: AnyDataset | None,
    own: Own,
    callbacks: Callbacks,
) -> Task[Any]:
    """The task, with the run's tokenizer or a new one that is saved in the run."""
    tokenizer = own.tokenizer or _existing_tokenizer(run, config, trained)
    run.checkpoints.mkdir(exist_ok=True)
    if config.train.adapter is not None and trained is not None and not (run.path / BASE).is_file():
        write_base(run, trained)
    workspace = Workspace(
        run.checkpoints,
        tokenizer,
        dataset=dataset,
        on_phase=callbacks.on_phase,
        on_progress=callbacks.on_progress,
    )
    task = TASKS[config.task](config, workspace)
    if task.tokenizer is not None and (tokenizer is None or own.tokenizer is not None):
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


def _finish(run: Run, trainer: Trainer, own: Own) -> Evaluation:
    """Train to the end, and write the weights and the card."""
    found = trainer.train()
    with trainer.ema.applied():
        weights = trainer.group.gather_full(trainer.own_weights())

        def write() -> None:
            if trainer.adapter is not None:
                trainer.adapter.save(run, weights, trainer.task.meta)
            else:
                network = None if own.model is None else trainer.model
                save_weights(run, trainer.task.config, weights, trainer.task.meta, network=network)

        trainer.group.on_main(write)
    trainer.group.on_main(lambda: write_card(run, trainer, found))
    return found
