"""A Hugging Face folder: config.json, safetensors or .bin weights, perhaps in several files, and a tokenizer.

Nothing of the folder is executed: weights that are a pickle are read by torch's `weights_only`, which knows tensors
and nothing else, and code in the folder is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format
from clearhead.interop.tokenizer_files import read_tokenizer

MAX_JSON = 1 << 26  # bytes of a JSON file that is read whole
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
POOLINGS = {  # of sentence-transformers -> ours
    "pooling_mode_cls_token": "class",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}


@FORMATS.register("huggingface")
class HuggingFace(Format):
    """A folder as `save_pretrained` writes it, or as sentence-transformers does."""

    def can_read(self, path: Path) -> bool:
        if not (path / "config.json").is_file() or (path / "config.yaml").exists():
            return False
        try:
            values = read_json(path / "config.json")
        except RunError:
            return True  # it is said below what is wrong with it
        return isinstance(values, dict) and bool({"model_type", "architectures"} & values.keys())

    def read(self, path: Path) -> Checkpoint:
        config = read_json(path / "config.json")
        if not isinstance(config, dict):
            raise RunError(f"{path / 'config.json'} is not the configuration of a model")
        if (path / "modules.json").is_file():
            config["sentence_embedding"] = _sentence_embedding(path)
        for name in ("generation_config", "preprocessor_config"):
            if (path / f"{name}.json").is_file():
                config[name] = read_json(path / f"{name}.json")
        tensors = open_weights(path)
        return Checkpoint(path, config, tensors, read_tokenizer(path, config), {}, tensors.precision)


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise RunError(f"{path} is too large for a JSON file of a model: {path.stat().st_size:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise RunError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


def _sentence_embedding(path: Path) -> dict[str, Any]:
    """How sentence-transformers makes one vector of a text: pooling, and perhaps a length of 1."""
    pooling, normalise, longest = "mean", False, None
    for module in read_json(path / "modules.json"):
        kind, folder = str(module.get("type", "")).rsplit(".", 1)[-1], path / str(module.get("path", ""))
        if kind == "Pooling":
            values = read_json(folder / "config.json")
            chosen = [ours for theirs, ours in POOLINGS.items() if values.get(theirs)]
            if len(chosen) != 1 or any(value is True for name, value in values.items() if _other_pooling(name)):
                raise RunError(f"{folder / 'config.json'} has a pooling that Clearhead cannot import")
            pooling = chosen[0]
        elif kind == "Normalize":
            normalise = True
        elif kind != "Transformer":
            raise RunError(f"{path / 'modules.json'} has a module {kind}, which Clearhead cannot import")
    if (path / "sentence_bert_config.json").is_file():
        longest = read_json(path / "sentence_bert_config.json").get("max_seq_length")
    return {"pooling": pooling, "normalise": normalise, "max_length": longest}


def _other_pooling(name: str) -> bool:
    return name.startswith("pooling_mode_") and name not in POOLINGS


# --- weights ---


class Weights(Mapping[str, Tensor]):
    """The tensors of one or several files, each read when it is asked for."""

    def __init__(self, files: Mapping[str, Path]):
        self.files = files  # tensor -> the file that it is in
        self._open: dict[Path, Any] = {}

    def __getitem__(self, name: str) -> Tensor:
        path = self.files[name]
        try:
            if path not in self._open:
                self._open[path] = _open(path)
            opened = self._open[path]
            found: Tensor = opened[name] if isinstance(opened, dict) else opened.get_tensor(name)
        except (SafetensorError, KeyError, OSError) as problem:
            raise RunError(f"{path} is damaged: {name} cannot be read ({problem})") from None
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def precision(self) -> str:
        """The types in which the weights are stored."""
        kinds = {self[name].dtype for name in list(self)[:64]}
        return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds if kind.is_floating_point))


def open_weights(path: Path) -> Weights:
    """The tensors of a folder, from one file or from those that an index lists."""
    for name in WEIGHTS:
        if (path / name).is_file():
            return Weights(dict.fromkeys(_names(path / name), path / name))
        if (path / f"{name}.index.json").is_file():
            return Weights(_indexed(path, read_json(path / f"{name}.index.json")))
    raise RunError(f"{path} has no weights: neither {' nor '.join(WEIGHTS)}")


def _indexed(path: Path, index: Any) -> dict[str, Path]:
    """Each tensor's file; an index may not lead out of the folder."""
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict):
        raise RunError(f"{path}: the index of its weights has no weight_map")
    for file in sorted({str(each) for each in files.values()}):
        if Path(file).name != file:
            raise RunError(f"{path}: the index of its weights leads out of the folder: {file}")
        if not (path / file).is_file():
            raise RunError(f"{path}: its weights are incomplete: {file} is missing")
        if lost := {name for name, at in files.items() if at == file} - set(_names(path / file)):
            raise RunError(f"{path / file} lacks {sorted(lost)[0]}, which the index promises")
    return {name: path / str(file) for name, file in files.items()}


def _names(path: Path) -> list[str]:
    opened = _open(path)
    return list(opened.keys())


def _open(path: Path) -> Any:
    """A safetensors file, whose tensors are read one by one, or the tensors of a .bin file, which are mapped."""
    if path.suffix == ".safetensors":
        try:
            return safe_open(path, framework="pt")
        except (SafetensorError, OSError) as problem:
            raise RunError(f"{path} is damaged or not a safetensors file ({problem})") from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
    except Exception as problem:  # torch raises many kinds, for a pickle with code among them
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise RunError(f"{path} holds something other than tensors, or is damaged ({reason[:120]})") from None
    if not isinstance(loaded, dict) or not all(isinstance(each, Tensor) for each in loaded.values()):
        raise RunError(f"{path} holds something other than tensors by name")
    return loaded
