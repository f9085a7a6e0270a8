"""Adapters: small updates trained beside a frozen model, saved by themselves, and merged into a model of their own.

    train.start_from=RUN train.adapter=lora train.rank=8     every weight of RUN is frozen, and each matrix of
                                                             `train.targets` gets an update of low rank
    clearhead merge ADAPTER --out DIR                        the sum, as a run directory like any other

What the base does not have, such as the output layer of other labels, is trained as a whole and saved with the adapter.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from clearhead.config import TrainConfig, dump
from clearhead.errors import ConfigError, RunError
from clearhead.files import write_text
from clearhead.nn import MultiHeadAttention
from clearhead.nn.lora import add_lora, base_name, lora_layers
from clearhead.run import ModelMeta, Run, find
from clearhead.tasks import override_config, run_config
from clearhead.tasks.base.adapters import is_adapter, save_adapter
from clearhead.tasks.base.network import load_weights, save_weights, tied_names
from clearhead.train.pack import new_folder
from clearhead.train.parts import matching_linears

COPIED = ("tokenizer.json", "card.md", "metrics.jsonl")


@dataclass(frozen=True)
class Adapter:
    """What of a model in training belongs to the frozen base."""

    taken: Mapping[str, str]  # name in the model without adapters -> name in the base
    names: frozenset[str]  # the same tensors by their names in the adapted model

    def own(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors that are trained."""
        return {name: tensor for name, tensor in tensors.items() if name not in self.names}

    def save(self, run: Run, tensors: Mapping[str, Tensor], meta: ModelMeta) -> None:
        """Write the adapter of a run."""
        save_adapter(run, self.own(tensors), meta, self.taken)


def add_adapter(model: nn.Module, config: TrainConfig, taken: Mapping[str, str]) -> tuple[Adapter, str]:
    """Freeze what a model has from its base and put updates beside the targets; returns a sentence about it too."""
    if not any(isinstance(part, MultiHeadAttention) for part in model.modules()):
        raise ConfigError(f"train.adapter={config.adapter} needs blocks of attention, and this model has none")
    taken = {**taken, **{name: taken[first] for name, first in tied_names(model).items() if first in taken}}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in taken)
    # A matrix that the base does not have is trained as a whole.
    targets = [name for name in matching_linears(model, config.targets) if f"{name}.weight" in taken]
    add_lora(model, targets, config.rank, config.alpha)
    layers = dict(lora_layers(model))
    names = frozenset(name for name in model.state_dict() if base_name(name, layers) in taken)
    total, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad or not only) for only in (0, 1))
    note = (
        f"trains {trained:,} of {total:,} parameters: an adapter of rank {config.rank} "
        f"for {len(targets)} matrices ({', '.join(config.targets)}); the others are frozen"
    )
    return Adapter(taken, names), note


def merge(run: Path, out: Path) -> None:
    """Write the model that an adapter makes of its base to a new directory."""
    adapter = Run.open(find(run))
    if not is_adapter(adapter):
        raise RunError(f"{run} is a whole model: only an adapter (train.adapter=lora) has something to merge")
    if out.exists():
        raise ConfigError(f"{out} is there already; choose another --out")
    config = run_config(adapter)
    weights, meta = load_weights(adapter, config)
    with new_folder(out) as place:
        write_text(place / "config.yaml", dump(override_config(config, ["train.adapter=none"])))
        for name in COPIED:
            if (adapter.path / name).is_file():
                shutil.copyfile(adapter.path / name, place / name)
        save_weights(Run(place), config, weights, meta)
