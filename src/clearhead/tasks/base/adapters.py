"""An adapter as a run directory: what was trained beside a frozen model, and which model that is.

    RUN/base.json             where the base is, and the checksum of its weights
    RUN/adapter.safetensors   A and B of each adapted matrix, and the layers that the base does not have

A base that is missing or has changed is one sentence: its adapter would give nonsense without a word.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from clearhead.errors import RunError
from clearhead.files import read_tensors, write_tensors, write_text
from clearhead.run import BUNDLED, FORMAT, ModelMeta, Run, bundled_names

WeightFiles = tuple[tuple[str, int, int], ...]  # path, time of the last change, size
BASE, ADAPTER = "base.json", "adapter.safetensors"


@dataclass(frozen=True)
class Base:
    """The model that an adapter belongs to."""

    path: str  # of its run directory, or the name of a model that comes with the package
    nearby: str  # its path from the adapter's directory, for two that are moved together
    checksum: str  # of its weights


def is_adapter(run: Run) -> bool:
    """Whether a run directory holds an adapter and not a whole model."""
    return (run.path / ADAPTER).is_file()


def write_base(run: Run, base: Run) -> None:
    """Note which model an adapter is trained for."""
    bundled, place = base.path.parent == BUNDLED, base.path.resolve()
    nearby = "" if bundled else os.path.relpath(place, run.path.resolve())
    found = Base(base.name if bundled else str(place), nearby, weights_checksum(base))
    write_text(run.path / BASE, json.dumps(asdict(found), indent=1))


def find_base(run: Run) -> Run:
    """The model that an adapter belongs to, if it is there and unchanged."""
    try:
        base = Base(**json.loads((run.path / BASE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise RunError(f"{run.path} is an adapter whose {BASE} is missing or damaged; train it again") from None
    places = [BUNDLED / base.path] if base.path in bundled_names() else [Path(base.path), run.path / base.nearby]
    found = [run for run in map(Run, places) if (run.path / "config.yaml").is_file() and weight_files(run)]
    for candidate in found:
        if weights_checksum(candidate) == base.checksum:
            return candidate
    if found:
        raise RunError(
            f"{run.path} is an adapter for {base.path}, whose weights have changed since it was trained; "
            "restore them or train the adapter again"
        )
    raise RunError(f"{run.path} is an adapter for {base.path}, which is not there; put that run directory back")


def weights_checksum(run: Run) -> str:
    """The SHA-256 of a run's weights."""
    return _checksum(weight_files(run))


def weight_files(run: Run) -> WeightFiles:
    """The files of a run's weights, with what tells a new one from an old one."""
    files = sorted(run.path.resolve().glob("model*.safetensors"))
    return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)


@lru_cache(maxsize=64)  # many adapters have the same base
def _checksum(files: WeightFiles) -> str:
    whole = hashlib.sha256()
    for name, _, _ in files:
        with Path(name).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def save_adapter(run: Run, tensors: Mapping[str, Tensor], meta: ModelMeta, taken: Mapping[str, str]) -> None:
    """Write an adapter; `taken` has the name in the base of each tensor of the model that is the base's."""
    facts = {"facts": meta.to_json(), "format": FORMAT, "taken": json.dumps(dict(taken))}
    write_tensors(run.path / ADAPTER, {name: each.detach().cpu().contiguous() for name, each in tensors.items()}, facts)


def load_adapter(run: Run) -> tuple[dict[str, Tensor], ModelMeta, dict[str, str]]:
    """What `save_adapter` wrote."""
    tensors, metadata = read_tensors(run.path / ADAPTER)
    if metadata.get("format") != FORMAT:
        raise RunError(f"{run.path / ADAPTER} was written by another version ({metadata.get('format', 'unknown')})")
    return tensors, ModelMeta.from_json(metadata["facts"]), json.loads(metadata["taken"])
