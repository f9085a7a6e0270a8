"""A Hugging Face folder: config.json, safetensors or .bin weights, perhaps in several files, and a tokenizer.

Nothing of the folder is executed: weights that are a pickle are read by torch's `weights_only`, which knows tensors
and nothing else, and code in the folder is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format
from clearhead.interop.formats.base.lazy import LazyTensors
from clearhead.interop.tokenizer_files import read_tokenizer

MAX_JSON = 1 << 26  # bytes of a JSON file that is read whole
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
POOLINGS = {"cls": "class", "mean": "mean", "lasttoken": "last", "max": "max"}  # of sentence-transformers -> ours
POOLINGS |= {"weightedmean": "weighted_mean", "mean_sqrt_len": "root_mean", "mean_sqrt_len_tokens": "root_mean"}
DENSE = "sentence_dense"  # of the names of its tensors
DENSE_ACTIVATIONS = {"Identity": "linear", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu"}


@FORMATS.register("huggingface")
class HuggingFace(Format):
    """A folder as `save_pretrained` writes it, or as sentence-transformers does."""

    def can_read(self, path: Path) -> bool:
        body = _body(path)
        if not (body / "config.json").is_file() or (path / "config.yaml").exists():
            return False
        try:
            values = read_json(body / "config.json")
        except RunError:
            return True  # it is said below what is wrong with it
        return isinstance(values, dict) and bool({"model_type", "architectures", "hidden_size"} & values.keys())

    def read(self, path: Path) -> Checkpoint:
        body = _body(path)
        config = read_json(body / "config.json")
        if not isinstance(config, dict):
            raise RunError(f"{body / 'config.json'} is not the configuration of a model")
        tensors = open_weights(body)
        found: Mapping[str, Tensor] = tensors
        if (path / "modules.json").is_file():
            config["sentence_embedding"] = _sentence_embedding(path, body)
            found = _with_dense(tensors, path)
        for name in ("generation_config", "preprocessor_config"):
            if (body / f"{name}.json").is_file():
                config[name] = read_json(body / f"{name}.json")
        return Checkpoint(body, config, found, read_tokenizer(body, config), {}, tensors.precision)


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise RunError(f"{path} is too large for a JSON file of a model: {path.stat().st_size:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise RunError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


# --- sentence-transformers ---


def _modules(path: Path) -> list[tuple[str, Path]]:
    """The modules that a text goes through, each with its folder; none for a folder of transformers."""
    file = path / "modules.json"
    listed = read_json(file) if file.is_file() else []
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise RunError(f"{file} is not a list of modules")
    found = [(str(each.get("type", "")).rsplit(".", 1)[-1], str(each.get("path", ""))) for each in listed]
    if outside := [name for _, name in found if len(Path(name).parts) > 1 or name == ".."]:
        raise RunError(f"{file} leads out of the folder: {outside[0]}")
    return [(kind, path / name) for kind, name in found]


def _body(path: Path) -> Path:
    """The folder of the Transformer: the folder itself, or a part of one by sentence-transformers."""
    try:
        return next((folder for kind, folder in _modules(path) if kind == "Transformer"), path)
    except RunError:
        return path  # it is said when it is read


def _sentence_embedding(path: Path, body: Path) -> dict[str, Any]:
    """How sentence-transformers makes one vector of a text: pooling, perhaps a dense layer, and a length of 1."""
    found: dict[str, Any] = {"pooling": "mean", "normalise": False, "dense": None}
    for kind, folder in _modules(path):
        if kind == "Pooling":
            found["pooling"] = _pooling(folder / "config.json")
        elif kind == "Normalize":
            found["normalise"] = True
        elif kind == "Dense" and found["dense"] is None and not found["normalise"]:
            found["dense"] = _dense_activation(folder / "config.json")
        elif kind != "Transformer":
            raise RunError(f"{path / 'modules.json'} has a module {kind}, which Clearhead cannot import")
    settings = body / "sentence_bert_config.json"
    values = read_json(settings) if settings.is_file() else {}
    usual = body / "tokenizer_config.json"
    longest = values.get("max_seq_length") or (read_json(usual) if usual.is_file() else {}).get("model_max_length")
    own = {"lowercase": bool(values.get("do_lower_case", False)), "prompt": _default_prompt(path)}
    return {**found, "max_length": longest, **own}


def _default_prompt(path: Path) -> str:
    """What stands before every text, where nothing else is asked for."""
    file = path / "config_sentence_transformers.json"
    values = read_json(file) if file.is_file() else {}
    prompt = (values.get("prompts") or {}).get(values.get("default_prompt_name")) or ""
    pooled = [folder / "config.json" for kind, folder in _modules(path) if kind == "Pooling"]
    if prompt and any(read_json(each).get("include_prompt", True) is False for each in pooled):
        raise RunError(f"{pooled[0]} has include_prompt=False, which Clearhead cannot import")
    return str(prompt)


def _pooling(file: Path) -> str:
    """Our name of a pooling; files of today name one, and older ones have a switch for each."""
    values = read_json(file)
    old = {
        name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for name, value in values.items()
        if name.startswith("pooling_mode_") and value is True
    }
    given = values.get("pooling_mode", sorted(old))
    chosen = given if isinstance(given, list) else [given]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise RunError(f"{file} has the pooling {', '.join(map(str, chosen))}; Clearhead has {', '.join(POOLINGS)}")
    return POOLINGS[chosen[0]]


def _dense_activation(file: Path) -> str:
    """Our name of the activation of a dense layer after the pooling."""
    name = str(read_json(file).get("activation_function", "torch.nn.Tanh")).rsplit(".", 1)[-1]
    if name not in DENSE_ACTIVATIONS:
        raise RunError(f"{file} has the activation {name}, which Clearhead cannot import")
    return DENSE_ACTIVATIONS[name]


def _with_dense(tensors: Weights, path: Path) -> Mapping[str, Tensor]:
    """The tensors of the Transformer and, under `sentence_dense`, those of a dense layer after the pooling."""
    dense = next((folder for kind, folder in _modules(path) if kind == "Dense"), None)
    if dense is None:
        return tensors
    more = open_weights(dense)
    return LazyTensors(
        {name: partial(tensors.__getitem__, name) for name in tensors}
        | {f"{DENSE}.{name}": partial(more.__getitem__, name) for name in more}
    )


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
