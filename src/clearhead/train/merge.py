"""`clearhead merge`: one model of two.

    merge ADAPTER --out DIR                          an adapter and its base: the sum
    merge RUN --with OTHER --share 0.7 --out DIR     two trainings of one network: 0.7 of RUN's weights, 0.3 of OTHER's

The second undoes part of a fine-tuning: a model between the two often keeps what the first knew and has most of what
the second learned (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from clearhead.config import dump
from clearhead.errors import ConfigError, RunError
from clearhead.files import write_text
from clearhead.run import Run, find
from clearhead.tasks import override_config, run_config
from clearhead.tasks.base.adapters import is_adapter
from clearhead.tasks.base.network import load_weights, save_weights
from clearhead.train.pack import new_folder

COPIED = ("tokenizer.json", "card.md", "metrics.jsonl")


def merge(run: Path, out: Path, other: Path | None = None, share: float = 0.5) -> None:
    """Write what an adapter makes of its base, or a mean of two runs, to a new directory."""
    if out.exists():
        raise ConfigError(f"{out} is there already; choose another --out")
    source = Run.open(find(run))
    if other is None and not is_adapter(source):
        raise RunError(f"{run} is a whole model: name the one to merge it --with; an adapter is merged with its base")
    config = run_config(source)
    weights, meta = load_weights(source, config)
    if other is not None:
        if not 0 <= share <= 1:
            raise ConfigError(f"--share {share:g}: it is the part of {run} in the mean, from 0 to 1")
        second = Run.open(find(other))
        _check_vocabulary(run, source, other, second)
        theirs, _ = load_weights(second, run_config(second))
        _check_shapes(run, weights, other, theirs)
        weights = {name: torch.lerp(theirs[name].float(), mine.float(), share) for name, mine in weights.items()}
    with new_folder(out) as place:
        write_text(place / "config.yaml", dump(override_config(config, ["train.adapter=none"])))
        for name in COPIED:
            if (source.path / name).is_file():
                shutil.copyfile(source.path / name, place / name)
        save_weights(Run(place), config, weights, meta)


def _check_vocabulary(run: Path, mine: Run, other: Path, theirs: Run) -> None:
    """The same row of the embedding must mean the same token."""
    first, second = (each.file("tokenizer.json") for each in (mine, theirs))
    if first.is_file() and second.is_file() and first.read_bytes() != second.read_bytes():
        raise RunError(f"{run} and {other} have different tokenizers; only trainings with the same one can be merged")


def _check_shapes(run: Path, mine: Mapping[str, Tensor], other: Path, theirs: Mapping[str, Tensor]) -> None:
    for name in sorted(mine.keys() | theirs.keys()):
        first, second = (tuple(weights[name].shape) if name in weights else "absent" for weights in (mine, theirs))
        if first != second:
            raise RunError(f"{run} and {other} are different networks: {name} is {first} and {second}")
