"""Checkpoints, from which an interrupted run resumes bit for bit.

    RUN/checkpoints/step-00000500/
        weights.safetensors, optimizer.safetensors, average.safetensors
        state.json      version, step, the checksum of every file above, and the rest of the state

A checkpoint is written under a temporary name, synced and renamed: it is complete or not there at all. Checksums detect
later damage: a damaged checkpoint is set aside, and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import RunError
from clearhead.files import read_tensors, sync, write_errors, write_tensors, write_text

VERSION = 1
DAMAGED = "damaged-"  # what the name of a checkpoint that was set aside begins with


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by group (weights, optimizer, average), and the rest of the training state as JSON values."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint, then delete all but the newest `keep`, and those that were set aside.

    Where this step has one already, it stays: a run that resumes there repeats what came after.
    """
    final = folder / f"step-{checkpoint.step:08d}"
    if final.exists():
        return final
    temporary = folder / f".{final.name}.part"
    with write_errors(folder), _removed_on_failure(temporary):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for group, tensors in checkpoint.tensors.items():
            if tensors:  # safetensors has no empty files
                write_tensors(temporary / f"{group}.safetensors", tensors)
        checksums = {path.name: checksum(path) for path in sorted(temporary.iterdir())}
        document = {"version": VERSION, "step": checkpoint.step, "files": checksums, "state": checkpoint.state}
        document["checksum"] = digest(document)
        write_text(temporary / "state.json", json.dumps(document, indent=1))
        temporary.replace(final)
        sync(folder)
        delete_old(folder, keep)
    return final


def delete_old(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints, and those that were set aside."""
    for old in (*saved(folder)[keep:], *folder.glob(f"{DAMAGED}*")):
        # Under the name of a leftover, half of it is not taken for a damaged checkpoint.
        shutil.rmtree(old.replace(old.with_name(f".{old.name}.part")))


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    """A full disk does not keep half a checkpoint."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def saved(folder: Path) -> list[Path]:
    """All checkpoint folders, newest first, without those that were set aside."""
    return sorted(folder.glob("step-*"), reverse=True)


def set_aside(folder: Path) -> list[str]:
    """Rename the damaged checkpoints, so that they do not count for `keep`; a sentence for each."""
    sentences = []
    for path in saved(folder):
        try:
            _verified(path)
        except DamagedError as problem:
            put_aside(path)
            sentences.append(f"{problem}; skipped")
        except RunError:  # of another version: a folder of shards
            continue
    return sentences


def put_aside(path: Path) -> None:
    """Rename one damaged checkpoint."""
    aside = path.with_name(f"{DAMAGED}{path.name}")
    with write_errors(path.parent):
        shutil.rmtree(aside, ignore_errors=True)
        path.replace(aside)


def load(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every checksum."""
    step, names, state = _verified(path)
    return Checkpoint(step, {name.removesuffix(".safetensors"): read_tensors(path / name)[0] for name in names}, state)


class DamagedError(RunError):
    """A checkpoint whose files are not as they were written."""


def _verified(path: Path) -> tuple[int, list[str], dict[str, Any]]:
    """The step, the names of the files and the state of a checkpoint, its checksums verified."""
    try:
        document = json.loads((path / "state.json").read_text(encoding="utf-8"))
        version, step, checksums, state = (document[key] for key in ("version", "step", "files", "state"))
        names = [name for name in checksums if Path(name).name == name]
        whole = document.pop("checksum", None) in (None, digest(document)) and len(names) == len(checksums)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DamagedError(f"checkpoint {path} is damaged: state.json is missing or incomplete") from None
    if version != VERSION:
        raise RunError(f"checkpoint {path} was written by another version ({version}; this one reads {VERSION})")
    if not whole:
        raise DamagedError(f"checkpoint {path} is damaged: state.json has changed")
    for name in names:
        if not (path / name).is_file() or checksum(path / name) != checksums[name]:
            raise DamagedError(f"checkpoint {path} is damaged: {name} is missing or changed")
    return step, names, state


def digest(document: Mapping[str, Any]) -> str:
    """The checksum of state.json itself; the first version's files have none."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def checksum(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
