"""What a model can be trained for, one task per file, each from top to bottom: its configuration, its data and batches,
its loss and scores, and the predictor that `clearhead.load` returns.

    TASKS["translate"]                         the task; importing this package imports none of them, nor torch
    default_config("lm", size="tiny")          a task's configuration before the user changes anything
    load_config("recipe.yaml")                 a YAML file over the defaults of its task, or over its `base` file
    override_config(config, ["model.dim=64"])  with `section.key=value` assignments

A task from outside the package is a class that registers itself: docs/extending.md writes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import ConfigError, nearest
from clearhead.registry import Registry

if TYPE_CHECKING:
    from clearhead.config import AnyConfig, Document
    from clearhead.run import Run
    from clearhead.tasks.base.task import Task

TASKS: Registry[type[Task[Any]]] = Registry("task", "clearhead.tasks")


def default_config(task: str, size: str = "small") -> AnyConfig:
    """The configuration of a task before the user changes anything."""
    found = TASKS[task]
    if size not in found.sizes:
        raise ConfigError(f"unknown size {size}; {nearest(size, found.sizes)}")
    sections = {name: dict(values) for name, values in found.defaults.items()}
    sections["model"] = {**found.sizes[size], **sections.get("model", {})}
    return found.config_type().model_validate({"task": task, **sections})


def load_config(path: str | Path, parents: tuple[Path, ...] = ()) -> AnyConfig:
    """Read a YAML file; what it leaves out comes from its `base` file, or from the defaults of its task and `size`.

    `parents` are the files whose base this one is.
    """
    from clearhead.config import read_document

    path = Path(path)
    if path.resolve() in parents:
        raise ConfigError(f"{path}: its base leads back to itself")
    document = read_document(path)
    base = document.values.pop("base", None)
    if base is None:
        return _over_defaults(document)
    if "size" in document.values:
        raise ConfigError(f"{path}: base stands in a file, and instead of size")
    return document.over(_migrated(load_config(path.parent / str(base), (*parents, path.resolve())), document.values))


def run_config(run: Run) -> AnyConfig:
    """What a run was made from."""
    return parse_config(run.read_text("config.yaml"), str(run.path / "config.yaml"))


def parse_config(text: str, origin: str = "configuration") -> AnyConfig:
    """Read YAML text as `load_config` reads a file; `origin` is what errors call it."""
    from clearhead.config import parse_document

    document = parse_document(text, origin)
    if "base" in document.values:
        raise ConfigError(f"{origin}: base stands in a file, and instead of size")
    return _over_defaults(document)


def override_config(config: AnyConfig, assignments: Sequence[str]) -> AnyConfig:
    """Apply `section.key=value` assignments; a setting that has become a task of its own changes the task."""
    from clearhead.config import override

    legacy = TASKS[config.task].legacy_settings
    values: dict[str, Any] = {}
    for name, _, text in (each.partition("=") for each in assignments if each.partition("=")[0] in legacy):
        section, key = name.split(".")
        values.setdefault(section, {})[key] = text
    config = _migrated(config, values)
    return override(config, [each for each in assignments if each.partition("=")[0] not in legacy])


def _over_defaults(document: Document) -> AnyConfig:
    values = document.values
    try:
        values.setdefault("task", "translate")
        task = TASKS[str(values["task"])]
        if isinstance(values.get("model", {}), dict):  # what it is instead is an error when it is validated
            task.migrate(values)
        base = default_config(str(values["task"]), str(values.pop("size", "small")))
    except ConfigError as problem:
        raise ConfigError(f"{document.origin}: {problem}") from None
    return document.over(base)


def _migrated(config: AnyConfig, values: dict[str, Any]) -> AnyConfig:
    """The configuration as one of the task that the values, which may be of an older version, make of it."""
    if values.setdefault("task", config.task) != config.task:
        return config  # another task is refused when the values are validated
    if not isinstance(values.get("model", {}), dict):
        return config
    TASKS[config.task].migrate(values)
    if values["task"] == config.task:
        return config
    return TASKS[str(values["task"])].config_type().model_validate({**config.model_dump(), "task": values["task"]})
