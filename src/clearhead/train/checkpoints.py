"""Checkpoints, from which an interrupted run resumes bit for bit.

    RUN/checkpoints/step-00000500/
        weights.safetensors, optimizer.safetensors, average.safetensors
        state.json      version, step, the checksum of every file above, and the rest of the state

A checkpoint is written under a temporary name, synced and renamed: it is complete or not there at all. Checksums detect
later damage; the previous checkpoint is used instead.
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
    """Tensors by group (weights, optimizer, average), and the rest of the training state as JSON values."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint, then delete all but the newest `keep`."""
    final = folder / f"step-{checkpoint.step:08d}"
    temporary = folder / f".{final.name}.part"
    with write_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for group, tensors in checkpoint.tensors.items():
            if tensors:  # safetensors has no empty files
                write_tensors(temporary / f"{group}.safetensors", tensors)
        checksums = {path.name: _checksum(path) for path in sorted(temporary.iterdir())}
        document = {"version": VERSION, "step": checkpoint.step, "files": checksums, "state": checkpoint.state}
        write_text(temporary / "state.json", json.dumps(document, indent=1))
        shutil.rmtree(final, ignore_errors=True)  # a damaged checkpoint of the same step
        temporary.replace(final)
        sync(folder)
        for old in saved(folder)[keep:]:
            shutil.rmtree(old)
    return final


def saved(folder: Path) -> list[Path]:
    """All checkpoint folders, newest first, damaged ones included."""
    return sorted(folder.glob("step-*"), reverse=True)


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest undamaged checkpoint, and a sentence for each damaged one that was skipped."""
    damaged: list[str] = []
    for path in saved(folder):
        try:
            return load(path), damaged
        except RunError as error:
            damaged.append(f"{error}; skipped")
    return None, damaged


def load(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every checksum."""
    try:
        document = json.loads((path / "state.json").read_text(encoding="utf-8"))
        version, step, checksums, state = (document[key] for key in ("version", "step", "files", "state"))
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"checkpoint {path} is damaged: state.json is missing or incomplete") from None
    if version != VERSION:
        raise RunError(f"checkpoint {path} was written by another version ({version}; this one reads {VERSION})")
    for name, checksum in checksums.items():
        if not (path / name).is_file() or _checksum(path / name) != checksum:
            raise RunError(f"checkpoint {path} is damaged: {name} is missing or changed")
    tensors = {name.removesuffix(".safetensors"): read_tensors(path / name)[0] for name in checksums}
    return Checkpoint(step, tensors, state)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
