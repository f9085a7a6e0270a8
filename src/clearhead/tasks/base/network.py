"""From a configuration to its network, and from a run directory to a network with its weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor, nn

from clearhead.config import AnyConfig
from clearhead.errors import RunError
from clearhead.models.build import initialise, without_initialisation
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import TASKS


def build_network(config: AnyConfig, sizes: Sizes) -> nn.Module:
    """A new network, its weights drawn with torch's current seed."""
    return initialise(TASKS[config.task].build(config.model, sizes))


def load_network(run: Run, config: AnyConfig) -> tuple[nn.Module, ModelMeta]:
    """The finished network of a run in evaluation mode, and what the data decided about it."""
    stored, meta = run.load_weights()
    network = _outline(config, meta.sizes)
    tensors = _with_tied(stored, network)
    if problem := _misfit(tensors, network.state_dict()):
        raise RunError(f"{run.path}: model.safetensors does not fit config.yaml: {problem}")
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return network.eval(), meta


def load_weights(run: Run, config: AnyConfig) -> tuple[dict[str, Tensor], ModelMeta]:
    """The finished weights of a run; a weight that two parts share stands under each of its names."""
    tensors, meta = run.load_weights()
    return _with_tied(tensors, _outline(config, meta.sizes)), meta


def save_weights(
    run: Run, config: AnyConfig, tensors: Mapping[str, Tensor], meta: ModelMeta, half: bool = False
) -> None:
    """Write the finished weights of a run, a shared one once, in float16 with `half`."""
    tied = tied_names(_outline(config, meta.sizes))
    run.save_weights({name: tensor for name, tensor in tensors.items() if name not in tied}, meta, half)


def tied_names(network: nn.Module) -> dict[str, str]:
    """Of each weight that several names share, its first name by the others."""
    first: dict[int, str] = {}
    names = ((name, first.setdefault(id(each), name)) for name, each in network.state_dict(keep_vars=True).items())
    return {name: known for name, known in names if name != known}


def parameter_count(network: nn.Module) -> int:
    """The number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in network.parameters())


def _outline(config: AnyConfig, sizes: Sizes) -> nn.Module:
    """The network, its weights not yet drawn; on torch's meta device it would take a second longer to import."""
    with without_initialisation():
        return TASKS[config.task].build(config.model, sizes)


def _with_tied(tensors: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    return {name: tensors[first] for name, first in tied_names(network).items() if first in tensors} | dict(tensors)


def _misfit(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """What is wrong with stored weights; empty if the network can load them."""
    if missing := expected.keys() - weights.keys():
        return f"it lacks {_listed(missing)}"
    if unknown := weights.keys() - expected.keys():
        return f"the model has no {_listed(unknown)}"
    for name, weight in weights.items():
        have, want = tuple(weight.shape), tuple(expected[name].shape)
        if have != want:
            return f"{name} has the shape {have} where {want} is expected"
    return ""


def _listed(names: Collection[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more
