"""Take a model elsewhere: `clearhead export FORMAT RUN --out DIR`.

A format is one file in `export/`, named like it:

    @EXPORTS.register("mine")
    class Mine(ExportFormat):
        def plan(self, model, quantise): ...      # a loaded model -> a function that writes it into a folder

`plan` refuses, with one sentence, what the format cannot express: before anything is written. The folder appears under
its name only when it is complete, with the card of the run (README.md), which says the data's licence.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import yaml

from clearhead.errors import ConfigError, RunError, nearest
from clearhead.files import write_errors, write_text
from clearhead.registry import Registry
from clearhead.run import read_card, split_card
from clearhead.tasks.base.predictor import Predictor, load

Write = Callable[[Path], None]


class ExportFormat(ABC):
    """One way to store a model for somebody else's program."""

    quantisations: ClassVar[tuple[str, ...]] = ()  # names that --quantise takes

    @abstractmethod
    def plan(self, model: Predictor, quantise: str | None) -> Write:
        """What writes the model into an empty folder; a RunError says what the format cannot express."""


EXPORTS: Registry[type[ExportFormat]] = Registry("export", package="clearhead.interop.export")


@dataclass(frozen=True)
class Exported:
    """The files that an export has written, and their bytes."""

    out: Path
    files: dict[str, int]


def export(name: str, model: str | Path, out: Path, quantise: str | None = None) -> Exported:
    """Write a model (a run directory or a name) to the new folder `out`."""
    chosen = EXPORTS[name]()
    if quantise is not None and quantise not in chosen.quantisations:
        known = nearest(quantise, chosen.quantisations) if chosen.quantisations else f"{name} takes none"
        raise ConfigError(f"--quantise {quantise} is not known to the format {name}; {known}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder; choose another --out")
    loaded = load(model, engine="torch")
    write = chosen.plan(loaded, quantise)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    with write_errors(out):
        temporary.mkdir(parents=True)
        try:
            write(temporary)
            write_text(temporary / "README.md", card(loaded, name))
            if out.exists():
                out.rmdir()
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return Exported(out, {file.name: file.stat().st_size for file in sorted(out.iterdir())})


def card(model: Predictor, name: str) -> str:
    """The card of a run for the folder of an export; its first lines are the facts, the data's licence among them."""
    try:
        facts, text = split_card(read_card(model.folder))
    except RunError:
        facts, text = {}, f"# {model.name}\n\n{model.title}.\n"
    facts = {"library_name": "clearhead", "model_name": model.name, **facts, "exported_as": name}
    front = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n{text}"
