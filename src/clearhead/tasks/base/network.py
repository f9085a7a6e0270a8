"""From a configuration to its network, and from a run directory to a network with its weights.

The network of an adapter shares the weights of its base: many adapters of one base need it in memory once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.config import AnyConfig
from clearhead.errors import ClearheadError, RunError
from clearhead.models.build import initialise, without_initialisation
from clearhead.nn.lora import add_lora, merged_state
from clearhead.nn.quantised import Quantised
from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import TASKS, run_config
from clearhead.tasks.base.adapters import WeightFiles, find_base, is_adapter, load_adapter, weight_files
from clearhead.tasks.base.own import NOTHING, Own

# The networks in memory by their files, the state of each when it was loaded, and the base of each adapter's network.
_networks: WeakValueDictionary[WeightFiles, nn.Module] = WeakValueDictionary()
_versions: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_bases: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()

# What a network may allocate that its file does not hold: a shared weight under each of its names, and tables.
SHARED = 4  # times
SPARE = 1 << 26  # numbers
SPARE_TENSORS = 1000


def build_network(config: AnyConfig, sizes: Sizes) -> nn.Module:
    """A new network, its weights drawn with torch's current seed."""
    return initialise(TASKS[config.task].build(config.model, sizes))


def load_network(run: Run, config: AnyConfig, own: Own = NOTHING) -> tuple[nn.Module, ModelMeta]:
    """The finished network of a run in evaluation mode, and what the data decided about it."""
    own.check(run)
    if is_adapter(run):
        return _load_adapted(run, config)
    stored, meta = run.load_weights()
    return _with_weights(stored, meta.sizes, run, config, own), meta


def _with_weights(
    stored: Mapping[str, Tensor], sizes: Sizes, run: Run, config: AnyConfig, own: Own = NOTHING
) -> nn.Module:
    """The network of a run with its stored weights, in evaluation mode."""
    network, files = own.build(sizes) or _outline_for(stored, run, config, sizes), weight_files(run)
    tensors = _with_tied(stored, network)
    if problem := _misfit(tensors, network.state_dict()):
        what = "config.yaml" if own.model is None else type(network).__name__
        raise RunError(f"{run.path}: model.safetensors does not fit {what}: {problem}")
    base = _in_memory(files)
    if base is not None and base in _bases.values():
        _share(base, network, {name: name for name in tensors})
    else:
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        _networks[files], _versions[network] = network, _version(network)
    return network.eval()


class OpenedNetwork:
    """The network of a run. Matrices that the run stores in blocks are read as floats only when somebody needs them:

    until then their memory is reserved and not touched, and an engine may compute with the blocks themselves.
    """

    def __init__(self, run: Run, config: AnyConfig, own: Own = NOTHING):
        self._run, self._lock, self.has_blocks, self._full = run, Lock(), False, True
        if own.model is not None or is_adapter(run):
            self.outline, self.meta = load_network(run, config, own)
            return
        own.check(run)
        tensors, quantised, self.meta = run.load_stored_weights()
        if quantised:
            self.outline, self.has_blocks, self._full = self._outline(tensors, quantised, config), True, False
        else:
            self.outline = _with_weights(tensors, self.meta.sizes, run, config)

    def _outline(self, tensors: dict[str, Tensor], quantised: Mapping[str, Quantised], config: AnyConfig) -> nn.Module:
        """The network with the weights that are stored in floats."""
        nothing = torch.zeros(1)
        shapes = {**tensors, **{name: nothing.expand(each.shape) for name, each in quantised.items()}}
        network = _outline_for(shapes, self._run, config, self.meta.sizes)
        if problem := _misfit(_with_tied(shapes, network), network.state_dict()):
            raise RunError(f"{self._run.path}: model.safetensors does not fit config.yaml: {problem}")
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, strict=False)
        return network.eval()

    def network(self) -> nn.Module:
        """The network with all of its weights."""
        with self._lock:
            if not self._full:
                weights = self.outline.state_dict()
                for name, blocks in self.quantised().items():
                    weights[name].data.copy_(blocks.dequantise())  # `data`: no change of the weights is counted
                self._full = True
        return self.outline

    def quantised(self) -> dict[str, Quantised]:
        """The matrices that are stored in blocks, from the memory-mapped file; none for other runs."""
        return self._run.load_stored_weights()[1] if self.has_blocks else {}


def load_weights(run: Run, config: AnyConfig) -> tuple[dict[str, Tensor], ModelMeta]:
    """The finished weights of a run; a weight that two parts share stands under each of its names."""
    NOTHING.check(run)
    if is_adapter(run):
        network, meta = _load_adapted(run, config)
        return merged_state(network), meta
    tensors, meta = run.load_weights()
    return _with_tied(tensors, _outline_for(tensors, run, config, meta.sizes)), meta


def _load_adapted(run: Run, config: AnyConfig) -> tuple[nn.Module, ModelMeta]:
    """The network of an adapter: the tensors of its base, and beside them its own."""
    stored, meta, taken = load_adapter(run)
    place, network = find_base(run), _outline(config, meta.sizes)
    base = _in_memory(weight_files(place)) or load_network(place, run_config(place))[0]
    taken |= {name: taken[first] for name, first in tied_names(network).items() if first in taken}
    adapted = [name.removesuffix(".a") for name in stored if name.endswith(".a") and f"{name[:-1]}b" in stored]
    new = stored.keys() - {f"{name}.{matrix}" for name in adapted for matrix in ("a", "b")}
    if missing := network.state_dict().keys() - taken.keys() - new:
        raise RunError(f"{run.path}: adapter.safetensors does not fit config.yaml: it lacks {_listed(missing)}")
    _share(base, network, taken)
    _bases[network] = base
    with without_initialisation():
        add_lora(network, adapted, config.train.rank, config.train.alpha)
    network.load_state_dict(stored, strict=False)
    return network.eval(), meta


def _share(base: nn.Module, network: nn.Module, taken: Mapping[str, str]) -> None:
    """Let a network use the memory of another one's tensors: its name of each -> the other's name."""
    theirs, used = base.state_dict(keep_vars=True), dict[int, nn.Parameter]()
    for name, other in taken.items():
        tensor, (place, _, own) = theirs[other], name.rpartition(".")
        part = network.get_submodule(place)
        if isinstance(tensor, nn.Parameter):  # one that is tied in the base is tied here
            setattr(part, own, used.setdefault(id(tensor), nn.Parameter(tensor.detach())))
        else:
            setattr(part, own, tensor.clone())


def _in_memory(files: WeightFiles) -> nn.Module | None:
    """The network of these files if it is in memory and nobody has trained it since."""
    network = _networks.get(files)
    return network if network is not None and _versions[network] == _version(network) else None


def _version(network: nn.Module) -> int:
    """A number that changes with every change of the weights in place."""
    return sum(weight._version for weight in network.parameters() if not weight.is_inference())


def save_weights(
    run: Run,
    config: AnyConfig,
    tensors: Mapping[str, Tensor],
    meta: ModelMeta,
    half: bool = False,
    network: nn.Module | None = None,
) -> None:
    """Write the finished weights of a run, a shared one once, in float16 with `half`; `network` is the user's own."""
    tied = tied_names(network or _outline(config, meta.sizes))
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
