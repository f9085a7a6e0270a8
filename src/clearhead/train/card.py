"""The card: what a model is, what it was made from, how good it is, and how to make it again.

Facts that programs read are YAML front matter, as on the Hugging Face hub; `clearhead.run` reads them back.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from clearhead import __version__
from clearhead.config import AnyConfig
from clearhead.data.catalogue import CATALOGUE, Entry
from clearhead.files import write_text
from clearhead.run import Run
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import parameter_count
from clearhead.tasks.base.task import Evaluation

if TYPE_CHECKING:
    from clearhead.train.loop import Trainer


def write_card(run: Run, trainer: Trainer, found: Evaluation) -> None:
    """Write card.md."""
    config = trainer.task.config
    datasets = [CATALOGUE[name] for name in config.data.path.split("+") if name in CATALOGUE]
    data = " and ".join(entry.title for entry in datasets) or config.data.path
    scores = [("loss", f"{found.loss:.4f}", "nats per token or example")]
    scores += [(score.name, f"{score.value:.4g}", score.signature) for score in found.scores]
    front = yaml.safe_dump(
        _front_matter(run, trainer, datasets, found), sort_keys=False, allow_unicode=True, width=1000
    )
    text = f"""---
{front}---
# {run.path.name}

{TASKS[config.task].title}, trained on {data}.

{_table(("", ""), [*_origin(config, datasets), *_making(run, trainer)])}

## Scores on the validation part

{_table(("score", "value", "signature"), scores)}
"""
    if found.sample:
        text += f"\n## A sample\n\n```\n{found.sample}\n```\n"
    write_text(run.path / "card.md", text)


def _front_matter(run: Run, trainer: Trainer, datasets: Sequence[Entry], found: Evaluation) -> dict[str, Any]:
    """What programs read of a card."""
    config = trainer.task.config
    return {
        "library_name": "clearhead",
        "model_name": run.path.name,
        "task": config.task,
        "datasets": [entry.name for entry in datasets],
        "licence": "; ".join(f"{entry.name}: {entry.licence}" for entry in datasets),
        "parameters": parameter_count(trainer.model),
        "metrics": {"loss": round(found.loss, 4), **{score.name: round(score.value, 4) for score in found.scores}},
    }


def _origin(config: AnyConfig, datasets: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """What it was trained on, and whom to credit."""
    sides = f", {config.data.source} → {config.data.target}" if config.data.source and config.data.target else ""
    yield "data", f"`{config.data.path}`{sides}"
    for entry in datasets:
        yield "licence", f"{entry.name}: {entry.licence}"
    if config.train.start_from is not None:
        yield "started from", f"the weights of `{Path(config.train.start_from).name}`, where they fit"
    if config.train.adapter is not None:
        targets = ", ".join(config.train.targets)
        yield "adapter", f"LoRA of rank {config.train.rank}, alpha {config.train.alpha:g}, for {targets}"
    if config.train.freeze:
        yield "frozen", ", ".join(config.train.freeze)


def _making(run: Run, trainer: Trainer) -> Iterator[tuple[str, str]]:
    """How large it is, and what training it took."""
    yield "parameters", f"{parameter_count(trainer.model):,}"
    yield "steps", f"{trainer.step:,} in {trainer.progress.elapsed / 60:.1f} minutes of training"
    yield from trainer.task.card_rows(trainer.task.config)
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "tokenizers"))
    yield "versions", f"Clearhead {__version__}, Python {platform.python_version()}, {libraries}"
    if run.command.is_file():
        yield "command", f"`{run.command.read_text(encoding='utf-8')}`"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *cells])
