"""`clearhead train TASK --data PATH`, `clearhead train RECIPE.yaml`, and `clearhead resume RUN`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.common import Json, console, print_json
from clearhead.cli.eval import print_scores
from clearhead.tasks import TASKS

if TYPE_CHECKING:
    from clearhead.tasks.base.task import Evaluation
    from clearhead.train.start import Plan


def train(
    what: Annotated[
        str,
        typer.Argument(help=f"Task ({', '.join(TASKS.builtin())}), or the path of a RECIPE.yaml."),
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change: section.key=value …")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Training data: a file, a folder, two files FILE,FILE, a dataset's name, or builtin."),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Model size: tiny, small or base.  [default: what fits the data and the time]")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Build it like llama, gpt2, neox, bert, marian, t5 or vit, so that it can be exported."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory to create.  [default: runs/TASK-TIME]")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print parameters, memory and time, and train nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model on your own data.

    What you do not choose is chosen for the amount of data and the time (train.max_minutes=…), printed, and written to
    config.yaml.
    """
    from clearhead.train.display import Display
    from clearhead.train.presets import preset_settings
    from clearhead.train.start import default_out, load_settings, plan_run, run_training

    config = load_settings(what, size)
    chosen = [] if preset is None else list(preset_settings(preset, config.task))
    changes = chosen + ([f"data.path={data}"] if data is not None else []) + (overrides or [])
    run = out or default_out(config)
    command = "clearhead " + " ".join(shlex.quote(word) for word in sys.argv[1:])
    with Display(run, silent=as_json) as callbacks:
        plan = plan_run(what, config, changes, size, callbacks)
        if not dry_run:
            evaluation = run_training(plan.config, run, command, callbacks, plan)
    if dry_run:
        _print_estimate(plan, as_json)
    else:
        _report(run, evaluation, as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="Run directory of an interrupted training.")],
    as_json: Json = False,
) -> None:
    """Continue an interrupted training, bit for bit."""
    from clearhead.train import start
    from clearhead.train.display import Display

    with Display(run, silent=as_json) as callbacks:
        evaluation = start.resume(run, callbacks)
    _report(run, evaluation, as_json)


def _report(run: Path, evaluation: Evaluation, as_json: bool) -> None:
    """Print the final scores and where the model is."""
    from clearhead.train.display import is_main

    if not is_main():
        return
    if as_json:
        print_json({"run": str(run), **evaluation.record()})
        return
    print_scores(evaluation)
    console().print(f"\nThe model is in {run}; its card is {run / 'card.md'}.", soft_wrap=True)


def _print_estimate(plan: Plan, as_json: bool) -> None:
    from clearhead.train.dry_run import estimate

    config = plan.config
    screen = console(stderr=True)
    screen.quiet = as_json
    found = estimate(config, lambda text: screen.print(text, soft_wrap=True), plan.dataset, plan.seconds)
    total, memory = sum(found.parameters.values()), sum(found.memory.values())
    if as_json:
        totals = {"total_parameters": total, "total_memory": memory, "minutes": found.minutes}
        print_json({"task": config.task, **asdict(found), **totals})
        return
    rows = [
        ("parameters", f"{total:,}"),
        *((f"  {part}", f"{count:,}") for part, count in found.parameters.items()),
        ("memory", f"{memory / 1e6:,.1f} MB"),
        *((f"  {part}", f"{size / 1e6:,.1f} MB") for part, size in found.memory.items()),
        ("steps", f"{found.steps:,}"),
        (f"{found.unit} per step", f"{found.per_step:,.0f}"),
        ("time per step", f"{1000 * found.seconds_per_step:,.0f} ms"),
        ("preparation", f"about {_duration(found.preparation_minutes)}"),
        ("evaluations", f"{found.evaluations}, about {_duration(found.evaluation_minutes)} in all"),
        ("time", f"about {_duration(found.minutes)}"),
    ]
    width = 2 + max(len(name) for name, _ in rows)
    for name, value in rows:
        console().print(f"{name:<{width}}{value}", soft_wrap=True)


def _duration(minutes: float) -> str:
    if minutes < 2:
        return f"{60 * minutes:.0f} seconds"
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
