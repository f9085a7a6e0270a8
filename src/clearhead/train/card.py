"""The card: what a model is, what it was made from, how good it is, and how to make it again."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from clearhead import __version__
from clearhead.train.run import Run, write_text
from clearhead.train.task import Evaluation

if TYPE_CHECKING:
    from clearhead.train.loop import Trainer


def write_card(run: Run, trainer: Trainer, found: Evaluation, command: str) -> None:
    """Write card.md."""
    config = trainer.task.config
    parameters = sum(p.numel() for p in trainer.model.parameters())
    rows = "\n".join(f"| {score.name} | {score.value:.4g} | {score.signature} |" for score in found.scores)
    start = config.train.start_from
    begun = f"| begun with | the weights of `{start}`, where they fit |\n" if start is not None else ""
    text = f"""# {run.path.name}

A model for the task `{config.task}`, trained by Clearhead {__version__}.

| | |
| --- | --- |
| data | `{config.data.path}` |
{begun}| parameters | {parameters:,} |
| steps | {trainer.step:,} in {trainer.progress.elapsed / 60:.1f} minutes of training |
| versions | Python {platform.python_version()}, torch {version("torch")}, tokenizers {version("tokenizers")} |
| command | `{command}` |

## Scores on the validation part

| score | value | signature |
| --- | --- | --- |
| loss | {found.loss:.4f} | nats per token or example |
{rows}
"""
    if found.sample:
        text += f"\n## A sample\n\n```\n{found.sample}\n```\n"
    write_text(run.path / "card.md", text)
