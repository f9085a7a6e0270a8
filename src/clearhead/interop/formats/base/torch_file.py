"""Files that `torch.save` wrote, read without running any code that they may hold."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.data.archives import BROKEN
from clearhead.errors import RunError

MAX_CONFIG = 1 << 20  # bytes of a config.json


def is_torch_file(path: Path) -> bool:
    """Whether a file is one of torch's zip archives."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def load_torch(path: Path) -> Any:
    """What a file holds: tensors, mapped and not yet read, in plain containers."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(info.file_size > info.compress_size for info in archive.infolist()):
                raise RunError(f"{path} is compressed, as torch never writes it; save it again with torch.save")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        raise RunError(f"{path} holds Python objects that could run code; save only its state_dict()") from None
    except (*BROKEN, OSError, TypeError, AttributeError, IndexError, AssertionError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise RunError(f"{path} is damaged or not a file of torch.save: {reason}") from None


def state_dict_of(content: Any, *keys: str) -> dict[str, Tensor]:
    """The tensors of a checkpoint: the whole of it, or what stands under the first of these keys that it has."""
    for key in keys:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping):
        return {}
    # torch.compile and DistributedDataParallel put a word before every name.
    tensors = {str(name): tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
    return {name.removeprefix("_orig_mod.").removeprefix("module."): each for name, each in tensors.items()}


def settings_beside(path: Path) -> dict[str, Any]:
    """The config.json in the folder of a file; empty if there is none."""
    beside = (path if path.is_dir() else path.parent) / "config.json"
    if not beside.is_file():
        return {}
    if beside.stat().st_size > MAX_CONFIG:
        raise RunError(f"{beside} is not the configuration of a model: it has {beside.stat().st_size:,} bytes")
    try:
        values = json.loads(beside.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise RunError(f"{beside} is not valid JSON") from None
    return values if isinstance(values, dict) else {}


def stored(tensor: Tensor) -> Callable[[], Tensor]:
    """A reader of a tensor that is mapped already; bfloat16, which numpy lacks, becomes float32."""
    return lambda: tensor.float() if tensor.dtype == torch.bfloat16 else tensor.contiguous()


def precision_of(tensors: Mapping[str, Tensor]) -> str:
    """The type of the weights, as people write it."""
    kinds = {str(each.dtype).removeprefix("torch.") for each in tensors.values() if each.is_floating_point()}
    return "float32" if len(kinds) != 1 else kinds.pop()
