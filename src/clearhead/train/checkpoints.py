"""Checkpoints: where an interrupted run goes on, bit for bit.

Each is a folder `step-00000500` with tensors and a `state.json` that lists every other file with its checksum. It is
written under another name, synced and renamed, so it is there whole or not at all; and whoever damages one later is
found out, and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import RunError
from clearhead.files import read_tensors, sync, write_errors, write_tensors, write_text

VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """The tensors, by group (weights, optimizer, average), and everything else that must come back."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`."""
    final = folder / f"step-{checkpoint.step:08d}"
    temporary = folder / f".{final.name}.part"
    with write_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for group, tensors in _filled(checkpoint.tensors).items():
            write_tensors(temporary / f"{group}.safetensors", tensors)
        sums = {path.name: _checksum(path) for path in sorted(temporary.iterdir())}
        document = {"version": VERSION, "step": checkpoint.step, "files": sums, "state": checkpoint.state}
        write_text(temporary / "state.json", json.dumps(document, indent=1))
        shutil.rmtree(final, ignore_errors=True)  # a damaged one of the same step
        temporary.replace(final)
        sync(folder)
        for old in saved(folder)[keep:]:
            shutil.rmtree(old)
    return final


def saved(folder: Path) -> list[Path]:
    """All checkpoints, the newest first, whole or not."""
    return sorted(folder.glob("step-*"), reverse=True)


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint, and a sentence for each damaged one that was passed over."""
    damaged: list[str] = []
    for path in saved(folder):
        try:
            return load(path), damaged
        except RunError as problem:
            damaged.append(f"{problem}; passed over")
    return None, damaged


def load(path: Path) -> Checkpoint:
    """Read one checkpoint, comparing every checksum."""
    try:
        document = json.loads((path / "state.json").read_text(encoding="utf-8"))
        version, step, sums, state = (document[key] for key in ("version", "step", "files", "state"))
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"checkpoint {path} is damaged: state.json is missing or not whole") from None
    if version != VERSION:
        raise RunError(f"checkpoint {path} was written by another version ({version}; this one reads {VERSION})")
    for name, sum_ in sums.items():
        if not (path / name).is_file() or _checksum(path / name) != sum_:
            raise RunError(f"checkpoint {path} is damaged: {name} is missing or changed")
    tensors = {name.removesuffix(".safetensors"): read_tensors(path / name)[0] for name in sums}
    return Checkpoint(step, tensors, state)


def _filled(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Mapping[str, Tensor]]:
    """The groups that hold anything: the format has no empty files."""
    return {group: tensors for group, tensors in groups.items() if tensors}


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
