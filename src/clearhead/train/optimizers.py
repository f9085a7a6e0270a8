"""Optimisers: AdamW for everything, or Muon for the matrices of the blocks and AdamW for the rest.

Their state is saved as tensors named after the parameters: `0.exp_avg.blocks.1.weight` is the first moment that
optimiser 0 keeps of `blocks.1.weight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from clearhead.config import TrainConfig
from clearhead.errors import RunError
from clearhead.train.muon import Muon

NamedParameter = tuple[str, nn.Parameter]


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """AdamW, followed by Muon if the config chooses it and the model has blocks."""
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices = {name for name, p in parameters.items() if _is_matrix(p) and id(p) not in embeddings}
    muon = {name for name in matrices if _is_in_block(name, parameters[name]) and config.optimizer == "muon"}
    decays = ((matrices - muon, config.weight_decay), (parameters.keys() - matrices, 0.0))
    groups = [{"params": _select(parameters, names), "weight_decay": decay} for names, decay in decays if names]
    optimizers: list[Optimizer] = [AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)]
    if muon:
        optimizers.append(Muon(_select(parameters, muon), lr=config.matrix_rate, weight_decay=config.weight_decay))
    for group in _groups(optimizers):
        group["base_rate"] = group["lr"]  # what the schedule multiplies
    return optimizers


def set_learning_rates(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set the learning rate of every parameter group to `factor` times its highest rate."""
    for group in _groups(optimizers):
        group["lr"] = group["base_rate"] * factor


def _is_matrix(parameter: nn.Parameter) -> bool:
    """True for weights that decay: not a bias, a norm's gain, or one number per head."""
    return parameter.ndim >= 2 and parameter.shape[-2:].numel() > 1


def _is_in_block(name: str, parameter: nn.Parameter) -> bool:
    """True for a single matrix or convolution inside a block: not an embedding, an output, or a stack of matrices."""
    return parameter.ndim in (2, 4) and "blocks" in name.split(".")


def _select(parameters: Mapping[str, nn.Parameter], names: Set[str]) -> list[NamedParameter]:
    """The named parameters, in the order of the model."""
    return [(name, parameter) for name, parameter in parameters.items() if name in names]


def _groups(optimizers: Sequence[Optimizer]) -> Iterator[dict[str, Any]]:
    return (group for optimizer in optimizers for group in optimizer.param_groups)


# --- saving and loading ---


def optimizer_state(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The state of all optimisers by name, `0.exp_avg.blocks.1.weight`; not copies."""
    return {
        f"{index}.{key}.{name}": value.detach()
        for index, optimizer in enumerate(optimizers)
        for name, parameter in _named(optimizer)
        for key, value in sorted(optimizer.state.get(parameter, {}).items())
    }


def parameter_name(name: str) -> str:
    """The parameter that a tensor of `optimizer_state` belongs to: 0.exp_avg.blocks.1.weight -> blocks.1.weight."""
    return name.split(".", 2)[2]


def load_optimizer_state(optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Restore `optimizer_state` into optimisers of a model with the same names and shapes."""
    _check_tensors(optimizers, tensors)
    for index, optimizer in enumerate(optimizers):
        optimizer.state.clear()
        for name, parameter in _named(optimizer):
            saved = {key: tensors.get(f"{index}.{key}.{name}") for key in _state_keys(optimizer)}
            # Beside its parameter: the fused AdamW keeps its step count there too.
            state = {
                k: value.detach().to(parameter.device, copy=True) for k, value in saved.items() if value is not None
            }
            if state:
                optimizer.state[parameter] = state


def _named(optimizer: Optimizer) -> Iterator[NamedParameter]:
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def _state_keys(optimizer: Optimizer) -> tuple[str, ...]:
    return ("momentum",) if isinstance(optimizer, Muon) else ("exp_avg", "exp_avg_sq", "step")


def _check_tensors(optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Refuse unknown names, wrong shapes, and parameters of which only a part was saved."""
    unknown = set(tensors)
    for index, optimizer in enumerate(optimizers):
        for name, parameter in _named(optimizer):
            shapes = {f"{index}.{k}.{name}": () if k == "step" else parameter.shape for k in _state_keys(optimizer)}
            _check_parameter(shapes, tensors)
            unknown -= shapes.keys()
    if unknown:
        names = ", ".join(sorted(unknown))
        raise RunError(f"the saved optimiser is of another model or of another kind: nothing here is called {names}")


def _check_parameter(shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """All tensors of a parameter must be saved with the right shape, or none: one never updated has no state."""
    missing = sorted(shapes.keys() - tensors.keys())
    if missing and len(missing) < len(shapes):
        raise RunError(f"the saved optimiser is not whole: {', '.join(missing)} is missing")
    for name in sorted(shapes.keys() & tensors.keys()):
        have, want = tuple(tensors[name].shape), tuple(shapes[name])
        if have != want:
            raise RunError(f"the saved optimiser has {name} of shape {have} where {want} is expected")
