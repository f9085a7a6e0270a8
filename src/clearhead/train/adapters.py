"""Adapters: small updates trained beside a frozen model and saved by themselves; `train/merge.py` adds them up.

    train.start_from=RUN train.adapter=lora train.rank=8     every weight of RUN is frozen, and each matrix of
                                                             `train.targets` gets an update of low rank

What the base does not have, such as the output layer of other labels, is trained as a whole and saved with the adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.config import TrainConfig
from clearhead.errors import ConfigError
from clearhead.nn import MultiHeadAttention
from clearhead.nn.lora import add_lora, base_name, lora_layers
from clearhead.run import ModelMeta, Run
from clearhead.tasks.base.adapters import save_adapter
from clearhead.tasks.base.network import tied_names
from clearhead.train.parts import matching_linears


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
