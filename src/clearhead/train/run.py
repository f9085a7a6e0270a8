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
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from clearhead import config as configuration
from clearhead.config import Config
from clearhead.errors import ConfigError, RunError
from clearhead.models.build import Sizes, build
from clearhead.text import Tokenizer


@dataclass(frozen=True)
class Facts:
    """What is learned from the data before training and needed ever after."""

    sizes: Sizes
    labels: tuple[str, ...] = field(default=())
    usual: int = 0  # tokens of a source, which 99 of 100 had no more of; 0 = not known


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
        with writing(path):
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

    def save_model(self, tensors: Mapping[str, Tensor], facts: Facts, half: bool = False) -> None:
        """Write the finished weights, each tied one once, in float16 if they are to be small."""
        tied = tied_names(_outline(self.config, facts.sizes))
        kept = {name: _storable(tensor, half) for name, tensor in tensors.items() if name not in tied}
        header = {"facts": json.dumps(asdict(facts)), "format": "clearhead 1"}
        write_tensors(self.path / "model.safetensors", kept, header)

    def load_model(self) -> tuple[dict[str, Tensor], Facts]:
        """The finished weights, tied ones under each of their names, and what goes with them."""
        tensors, facts = self._stored()
        return _with_tied(tensors, _outline(self.config, facts.sizes)), facts

    def load_network(self) -> tuple[nn.Module, Facts]:
        """The finished model, ready to be used, and what goes with it."""
        stored, facts = self._stored()
        network = build(self.config, facts.sizes)
        tensors = _with_tied(stored, network)
        if problem := _misfit(tensors, network.state_dict()):
            raise RunError(f"{self.path}: model.safetensors does not fit config.yaml: {problem}")
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        return network.eval(), facts

    def _stored(self) -> tuple[dict[str, Tensor], Facts]:
        """What the file has: each tied weight once."""
        path = self.path / "model.safetensors"
        if not path.is_file():
            raise RunError(f"{self.path} has no model yet; finish it with `clearhead resume {self.path}`")
        tensors, header = read_tensors(path)
        if header.get("format") != "clearhead 1":
            raise RunError(f"{path} was written by another version ({header.get('format', 'unknown')})")
        said = json.loads(header["facts"])
        return tensors, Facts(Sizes(**said["sizes"]), tuple(said["labels"]), said.get("usual", 0))

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


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> None:
    """A safetensors file that is under its name only when it is whole and on the disk."""
    with _replacing(path) as temporary:
        # Tied weights share memory, which the format does not know: each name gets its own copy.
        save_file({name: tensor.clone() for name, tensor in tensors.items()}, temporary, dict(header or {}))


def write_text(path: Path, text: str) -> None:
    """A text file that is under its name only when it is whole and on the disk."""
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        raise RunError(f"{path} is damaged or not a safetensors file ({problem})") from None


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside the final one, synced and renamed at the end."""
    with writing(path):
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.touch()
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)  # safetensors writes files that only their owner can read
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk or a forbidden folder, as one sentence."""
    try:
        yield
    except (OSError, SafetensorError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise RunError(f"cannot write {path}: {reason}") from None


def sync(path: Path) -> None:
    """Wait until a file or folder is really on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """One more line of JSON."""
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def cpu_copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that training will not change any more."""
    with torch.no_grad():
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
