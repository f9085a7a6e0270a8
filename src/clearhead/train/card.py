"""The card: what a model is, what it was made from, how good it is, and how to make it again."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from clearhead import __version__
from clearhead.config import Config, Task
from clearhead.data.catalogue import CATALOGUE, Entry
from clearhead.files import write_text
from clearhead.run import Run, count_parameters
from clearhead.train.task import Evaluation

if TYPE_CHECKING:
    from clearhead.train.loop import Trainer


SYSTEMS: dict[Task, str] = {
    "translate": "A translator",
    "lm": "A language model",
    "classify": "A classifier of texts",
    "tag": "A tagger",
    "vision": "A classifier of images",
    "caption": "A writer of captions",
    "words": "Word vectors",
}


def write_card(run: Run, trainer: Trainer, found: Evaluation) -> None:
    """Write card.md."""
    config = trainer.task.config
    datasets = [CATALOGUE[name] for name in config.data.path.split("+") if name in CATALOGUE]
    scores = [("loss", f"{found.loss:.4f}", "nats per token or example")]
    scores += [(score.name, f"{score.value:.4g}", score.signature) for score in found.scores]
    text = f"""# {run.path.name}

{_title(config, datasets)}

{_table(("", ""), [*_origin(config, datasets), *_making(run, trainer)])}

## Scores on the validation part

{_table(("score", "value", "signature"), scores)}
"""
    if found.sample:
        text += f"\n## A sample\n\n```\n{found.sample}\n```\n"
    write_text(run.path / "card.md", text)


def _origin(config: Config, datasets: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """What it has learned from, and whom to credit."""
    sides = f", {config.data.source} → {config.data.target}" if config.data.source and config.data.target else ""
    yield "data", f"`{config.data.path}`{sides}"
    for entry in datasets:
        yield "licence", f"{entry.name}: {entry.licence}"
    if config.train.start_from is not None:
        yield "begun with", f"the weights of `{config.train.start_from}`, where they fit"


def _making(run: Run, trainer: Trainer) -> Iterator[tuple[str, str]]:
    """How large it is, and what it took."""
    yield "parameters", f"{count_parameters(trainer.model):,}"
    yield "steps", f"{trainer.step:,} in {trainer.progress.elapsed / 60:.1f} minutes of training"
    if trainer.task.config.task == "translate":
        yield "search", f"beams: {trainer.config.beam}"
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "tokenizers"))
    yield "versions", f"Clearhead {__version__}, Python {platform.python_version()}, {libraries}"
    if run.command.is_file():
        yield "command", f"`{run.command.read_text(encoding='utf-8')}`"


def _title(config: Config, datasets: Sequence[Entry]) -> str:
    """What it is, in one line."""
    data = " and ".join(entry.title for entry in datasets) or config.data.path
    return f"{SYSTEMS[config.task]}, trained on {data}."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown, where a bar within a cell has to be marked."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *cells])
