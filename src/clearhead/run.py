"""The run directory is the model: everything that a run leaves behind, and all that is needed to use it.

config.yaml         what it was made from, every default written out
tokenizer.json      text <-> ids (where there is text)
model.safetensors   the weights; its header holds sizes and labels
metrics.jsonl       one line for each measurement
attention/          where one validation example looked, at each evaluation
times.jsonl         the seconds of training up to each step
card.md             data, sizes, scores, versions and the command
checkpoints/        where an interrupted run goes on
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead import config as configuration
from clearhead.config import Config
from clearhead.errors import ConfigError, RunError
from clearhead.files import read_tensors, write_errors, write_tensors, write_text
from clearhead.models.build import Sizes, build
from clearhead.text import Tokenizer


@dataclass(frozen=True)
class ModelMeta:
    """What the data decides about a model, stored beside its weights."""

    sizes: Sizes
    labels: tuple[str, ...] = ()
    p99_source_length: int = 0  # tokens: 99 % of the training sources are no longer; 0 = unknown

    def to_json(self) -> str:
        """As the header of model.safetensors keeps it."""
        return json.dumps({"sizes": asdict(self.sizes), "labels": self.labels, "usual": self.p99_source_length})

    @classmethod
    def from_json(cls, text: str) -> ModelMeta:
        """Read what `to_json` wrote; the first version's files do not have every key."""
        values = json.loads(text)
        return cls(Sizes(**values["sizes"]), tuple(values["labels"]), values.get("usual", 0))


@dataclass(frozen=True)
class Run:
    """A run directory, by its path."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: Config) -> Run:
        """A new directory; one that holds another run is refused."""
        if (path / "config.yaml").exists():
            raise ConfigError(f"{path} holds another run; go on with `clearhead resume {path}` or choose another --out")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"{path} exists and is not an empty folder; choose another --out")
        with write_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            write_text(path / "config.yaml", configuration.dump(config))
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Run:
        """An existing directory."""
        if not (path / "config.yaml").is_file():
            raise RunError(f"{path} is not a run directory: it has no config.yaml")
        return cls(path)

    @property
    def config(self) -> Config:
        """What the run is made from."""
        return configuration.load(self.path / "config.yaml")

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are kept."""
        return self.path / "checkpoints"

    @property
    def command(self) -> Path:
        """Where the command that began the run is kept."""
        return self.checkpoints / "command.txt"

    def save_model(self, tensors: Mapping[str, Tensor], meta: ModelMeta, half: bool = False) -> None:
        """Write the finished weights, each tied one once, in float16 if they are to be small."""
        tied = tied_names(_outline(self.config, meta.sizes))
        kept = {name: _storable(tensor, half) for name, tensor in tensors.items() if name not in tied}
        header = {"facts": meta.to_json(), "format": "clearhead 1"}
        write_tensors(self.path / "model.safetensors", kept, header)

    def load_model(self) -> tuple[dict[str, Tensor], ModelMeta]:
        """The finished weights, tied ones under each of their names, and what goes with them."""
        tensors, meta = self._stored()
        return _with_tied(tensors, _outline(self.config, meta.sizes)), meta

    def load_network(self) -> tuple[nn.Module, ModelMeta]:
        """The finished model, ready to be used, and what goes with it."""
        stored, meta = self._stored()
        network = build(self.config, meta.sizes)
        tensors = _with_tied(stored, network)
        if problem := _misfit(tensors, network.state_dict()):
            raise RunError(f"{self.path}: model.safetensors does not fit config.yaml: {problem}")
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        return network.eval(), meta

    def _stored(self) -> tuple[dict[str, Tensor], ModelMeta]:
        """What the file has: each tied weight once."""
        path = self.path / "model.safetensors"
        if not path.is_file():
            raise RunError(f"{self.path} has no model yet; finish it with `clearhead resume {self.path}`")
        tensors, header = read_tensors(path)
        if header.get("format") != "clearhead 1":
            raise RunError(f"{path} was written by another version ({header.get('format', 'unknown')})")
        return tensors, ModelMeta.from_json(header["facts"])

    def load_tokenizer(self) -> Tokenizer | None:
        """Text <-> ids, where the run has it already."""
        path = self.path / "tokenizer.json"
        return Tokenizer.load(path) if path.exists() else None


def tied_names(network: nn.Module) -> dict[str, str]:
    """The first name of each weight that has several, by its other names."""
    first: dict[int, str] = {}
    names = ((name, first.setdefault(id(each), name)) for name, each in network.state_dict(keep_vars=True).items())
    return {name: known for name, known in names if name != known}


def _with_tied(tensors: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """A tied weight under each of the names that it has in a network."""
    return {name: tensors[first] for name, first in tied_names(network).items() if first in tensors} | dict(tensors)


def _outline(config: Config, sizes: Sizes) -> nn.Module:
    """A model of the same parts that holds no numbers, and draws none."""
    with torch.device("meta"):
        return build(config, sizes)


def _misfit(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """What is wrong with weights that a model is to take; nothing if they are those that it wants."""
    if missing := wanted.keys() - weights.keys():
        return f"it lacks {_listed(missing)}"
    if unknown := weights.keys() - wanted.keys():
        return f"the model has no {_listed(unknown)}"
    for name, weight in weights.items():
        have, want = tuple(weight.shape), tuple(wanted[name].shape)
        if have != want:
            return f"{name} has the shape {have} where {want} is expected"
    return ""


def _listed(names: Collection[str], most: int = 3) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more


def _storable(tensor: Tensor, half: bool) -> Tensor:
    tensor = tensor.detach().cpu().contiguous()
    return tensor.half() if half and tensor.is_floating_point() else tensor


def cpu_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that training will not change any more."""
    with torch.no_grad():
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def count_parameters(model: nn.Module) -> int:
    """Number of parameters; a tied one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
