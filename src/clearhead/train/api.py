"""`clearhead.train(...)` and `clearhead.evaluate(...)`: what the commands do, from Python.

model = clearhead.train("translate", data="pairs.tsv", out="runs/mine", **{"train.max_minutes": 5})
model = clearhead.train("classify", data=[("a warm film", "good"), ("dull", "bad"), …], max_minutes=1)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.config import AnyConfig, assignment, describe
from clearhead.data.memory import write_examples
from clearhead.errors import ConfigError, nearest
from clearhead.run import DATA
from clearhead.tasks import TASKS
from clearhead.tasks.base.own import Own
from clearhead.tasks.base.predictor import Predictor, load
from clearhead.train.display import Display
from clearhead.train.loop import Callbacks
from clearhead.train.start import default_out, load_settings, plan_run, remove_on_failure, run_training


def train(
    task: str,
    data: Any = None,
    out: str | Path | None = None,
    *,
    size: str | None = None,
    callbacks: Callbacks | None = None,
    progress: bool = True,
    model: Any = None,
    tokenizer: Any = None,
    **settings: Any,
) -> Predictor:
    """Train a model and load it.

    `task` is the name of a task, or the path of a RECIPE.yaml. `data` is what `--data` takes, or Python data: a list or
    an iterator of examples, a pandas DataFrame, a Hugging Face dataset, or a dict of parts; it is written into the run,
    so that the run can be resumed. Settings are named as on the command line, `**{"model.dim": 64}`, or by their last
    part where no other has it: `dim=64`. What is not given is chosen for the data and the time.

    `model` is a network of your own class, or a function of the data's `Sizes` that builds it; `tokenizer` is any
    object with `encode`, `decode` and a size. `clearhead.models.own` says what such a network computes; of both only
    the network's weights are saved, so `clearhead.load` needs them again.
    """
    config, own = load_settings(task, size), Own.of(model, tokenizer)
    changes = assignments(config, settings)
    if model is not None:
        changes = _for_own_model(changes, config)
    run = default_out(config) if out is None else Path(out)
    with remove_on_failure(run):
        if data is not None:
            path = data if isinstance(data, str | Path) else _written(data, config.task, run)
            changes.append(f"data.path={path}")
        with Display(run, silent=not progress, then=callbacks) as told:
            plan = plan_run(task, config, changes, size, told)
            run_training(plan.config, run, f"clearhead.train({task!r}, …)", told, plan, own)
    return load(run, own=own)


def assignments(config: AnyConfig, settings: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as `section.key=value`; a name without its section must be that of one setting only."""
    known = [name for name, _, _ in describe(config)]
    changes = []
    for name, value in settings.items():
        matching = [each for each in known if name in (each, each.partition(".")[2])]
        if len(matching) != 1:
            problem = f"is the name of {' and '.join(matching)}; write it whole" if matching else nearest(name, known)
            raise ConfigError(f"{'ambiguous' if matching else 'unknown'} setting {name}: {problem}")
        changes.append(assignment(matching[0], value))
    return changes


def _for_own_model(changes: list[str], config: AnyConfig) -> list[str]:
    """The settings for a network of another class: recipes know the rates of ours only, and it reads ids alone."""
    given = {change.partition("=")[0] for change in changes}
    if "train.adapter" in given:
        raise ConfigError("train.adapter cannot be combined with model=: an adapter belongs to a saved model of ours")
    usual = {"train.optimizer": "adamw", **({"model.features": 0} if hasattr(config.model, "features") else {})}
    return [*changes, *(assignment(name, value) for name, value in usual.items() if name not in given)]


def _written(data: Any, task: str, run: Path) -> Path:
    if run.exists() and any(run.iterdir()):
        raise ConfigError(f"{run} exists and is not an empty folder; choose another `out`")
    return write_examples(data, TASKS[task].data_kind, run / DATA)
