"""Tensors as JSON numbers, and a look as one safetensors file: tensors by name, everything else in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clearhead.errors import RunError
from clearhead.files import read_tensors, write_errors, write_tensors

FORMAT = "clearhead-look-1"
DIGITS = 5  # significant digits of a number in JSON


def rounded(tensor: Tensor) -> Any:
    """A tensor as nested lists of numbers with five significant digits."""
    numbers: NDArray[np.float64] = tensor.double().numpy()
    known = np.isfinite(numbers) & (numbers != 0)
    magnitude = np.floor(np.log10(np.abs(numbers), where=known, out=np.zeros_like(numbers)))
    places = DIGITS - 1 - magnitude  # after the point; before it if negative
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    return (np.rint(numbers * up / down) / up * down).tolist()


def write_look(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> Path:
    """Write one file, in a folder `look.safetensors` -> the file that was written."""
    file = path if path.suffix == ".safetensors" else path / "look.safetensors"
    with write_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_tensors(file, contiguous, {"look": json.dumps({"format": FORMAT, **header}, ensure_ascii=False)})
    return file


def read_look(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header that `write_look` wrote, from the file or its folder."""
    file = path / "look.safetensors" if path.is_dir() else path
    tensors, metadata = read_tensors(file)
    header: dict[str, Any] = json.loads(metadata.get("look", "{}"))
    if header.get("format") != FORMAT:
        raise RunError(f"{file} is not a saved look of this version: its format is {header.get('format', 'unknown')}")
    return tensors, header
