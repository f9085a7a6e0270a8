"""From a configuration to its network, and from a run directory to a network with its weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.config import AnyConfig
from clearhead.errors import ClearheadError, RunError
from clearhead.models.build import initialise, without_initialisation
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import TASKS

# What a network may allocate that its file does not hold: a shared weight under each of its names, and tables.
SHARED = 4  # times
SPARE = 1 << 26  # numbers
SPARE_TENSORS = 1000


def build_network(config: AnyConfig, sizes: Sizes) -> nn.Module:
    """A new network, its weights drawn with torch's current seed."""
    return initialise(TASKS[config.task].build(config.model, sizes))


def load_network(run: Run, config: AnyConfig) -> tuple[nn.Module, ModelMeta]:
    """The finished network of a run in evaluation mode, and what the data decided about it."""
    stored, meta = run.load_weights()
    network = _outline_for(stored, run, config, meta.sizes)
    tensors = _with_tied(stored, network)
    if problem := _misfit(tensors, network.state_dict()):
        raise RunError(f"{run.path}: model.safetensors does not fit config.yaml: {problem}")
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return network.eval(), meta


def load_weights(run: Run, config: AnyConfig) -> tuple[dict[str, Tensor], ModelMeta]:
    """The finished weights of a run; a weight that two parts share stands under each of its names."""
    tensors, meta = run.load_weights()
    return _with_tied(tensors, _outline_for(tensors, run, config, meta.sizes)), meta


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


def _outline_for(stored: Mapping[str, Tensor], run: Run, config: AnyConfig, sizes: Sizes) -> nn.Module:
    """The network that stored weights belong to; one that is far too large for them is refused before it is built."""
    elements = SHARED * sum(tensor.numel() for tensor in stored.values()) + SPARE
    try:
        with _AtMost(elements, tensors=SHARED * len(stored) + SPARE_TENSORS):
            return _outline(config, sizes)
    except _TooLargeError:
        problem = "config.yaml describes a far larger model"
    except (ValueError, TypeError, ArithmeticError, LookupError, RuntimeError, AssertionError) as error:
        if isinstance(error, ClearheadError):
            raise
        problem = str(error)
    raise RunError(f"{run.path}: model.safetensors does not fit config.yaml: {problem}")


class _TooLargeError(Exception):
    """A network needs more memory than its weights can fill."""


class _AtMost(TorchFunctionMode):
    """Counts the numbers and tensors that are allocated, and stops before there are too many."""

    def __init__(self, elements: int, tensors: int):
        super().__init__()
        self.elements, self.tensors = elements, tensors

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if shape := _new_shape(func, args, kwargs or {}):
            self.elements -= math.prod(shape)
            self.tensors -= 1
            if self.elements < 0 or self.tensors < 0:
                raise _TooLargeError
        return func(*args, **(kwargs or {}))


def _new_shape(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[int]:
    """The shape of the tensor that a function makes: of its arguments, or of operands that are broadcast."""
    if func in (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn):
        shape = kwargs.get("size", args[0] if args else ())
        return [each for each in args if isinstance(each, int)] if isinstance(shape, int) else shape
    if func is torch.arange:
        numbers = [each for each in args if isinstance(each, int | float)]
        return [math.ceil(max(numbers, default=0) - min(numbers, default=0))]
    operands = [each.shape[::-1] for each in args if isinstance(each, Tensor)]
    return [max(sizes) for sizes in zip_longest(*operands, fillvalue=1)] if len(operands) > 1 else ()


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
