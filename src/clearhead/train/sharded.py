"""Checkpoints of a model whose tensors are shards: every process writes its own, and any number of them reads all.

    RUN/checkpoints/step-00000500/
        weights/shard-00001-model-00001-of-00001.safetensors        the shards of process 0, and where they belong
        weights/shard-00002-…, optimizer/shard-00001-…, average/…
        state.json      as in checkpoints.py, with version 2

No process ever holds more than its shards. torch.distributed.checkpoint plans who writes and who reads what. Its usual
storage pickles the plan, and whoever unpickles a file runs what is in it; so this uses its safetensors storage, where a
shard's place in the tensor is in the header of its file. Checksums too are computed and verified in shares.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import RunError
from clearhead.files import sync, write_errors, write_text
from clearhead.train import checkpoints
from clearhead.train.checkpoints import Checkpoint, DamagedError
from clearhead.train.distributed import ProcessGroup

if TYPE_CHECKING:
    from torch.distributed.checkpoint.api import CheckpointException

VERSION = 2
FILE_BYTES = 2**24  # of a file that one process writes; one with a larger tensor is larger
PARTS = ("weights", "optimizer", "average")
OWN_FILE = re.compile(r"(weights|optimizer|average)/shard-[-\w]+\.safetensors")


@dataclass(frozen=True)
class Found:
    """A checkpoint that can be loaded: a folder of shards, or full tensors that the main process has read."""

    step: int
    state: Mapping[str, Any]
    folder: Path | None
    tensors: Mapping[str, Mapping[str, Tensor]]

    def shards(self, part: str, like: Callable[[str], Tensor | None], group: ProcessGroup) -> dict[str, Tensor]:
        """This process's shards of the weights, the optimizer or the average, split as `like` says for each name."""
        if self.folder is None:
            return group.scatter(self.tensors.get(part, {}), like)
        return _read(self.folder / part, like, group) if (self.folder / part).is_dir() else {}


def save(folder: Path, checkpoint: Checkpoint, keep: int, group: ProcessGroup) -> None:
    """Write a checkpoint of shards, then delete all but the newest `keep`; every process must call it."""
    final = folder / f"step-{checkpoint.step:08d}"
    temporary = folder / f".{final.name}.part"

    def prepare() -> None:
        with write_errors(folder):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)

    def finish() -> None:
        with write_errors(folder):
            files = {name: digest for each in checksums for name, digest in each.items()}
            document = {"version": VERSION, "step": checkpoint.step, "files": files, "state": checkpoint.state}
            document["checksum"] = checkpoints.digest(document)
            write_text(temporary / "state.json", json.dumps(document, indent=1))
            temporary.replace(final)
            sync(folder)
            checkpoints.delete_old(folder, keep)

    if group.on_main(final.exists):  # a run that resumes there repeats what came after
        return
    group.on_main(prepare)
    for part, tensors in checkpoint.tensors.items():
        if tensors:
            _write(temporary / part, tensors, group)
    mine = sorted(temporary.glob(f"*/shard-{group.rank + 1:05d}-*.safetensors"))
    checksums = group.gather({path.relative_to(temporary).as_posix(): checkpoints.checksum(path) for path in mine})
    group.on_main(finish)


def newest(folder: Path, group: ProcessGroup) -> tuple[Found | None, list[str]]:
    """The newest undamaged checkpoint of either kind, and a sentence for each damaged one; all must call it."""
    damaged: list[str] = []
    for path in group.on_main(lambda: checkpoints.saved(folder)):
        try:
            return _open(path, group), damaged
        except DamagedError as error:
            damaged.append(f"{error}; skipped")
            group.on_main(partial(checkpoints.put_aside, path))
    return None, damaged


def _open(path: Path, group: ProcessGroup) -> Found:
    if not group.on_main(lambda: any((path / part).is_dir() for part in PARTS)):
        whole: list[Checkpoint] = []
        step, state = group.on_main(lambda: _loaded(path, whole))
        return Found(step, state, None, whole[0].tensors if whole else {})
    document = group.on_main(lambda: _document(path))
    problems = group.gather(_damage(path, document["files"], group))
    if problem := next(filter(None, problems), None):
        raise DamagedError(problem)
    return Found(document["step"], document["state"], path, {})


def _loaded(path: Path, into: list[Checkpoint]) -> tuple[int, Mapping[str, Any]]:
    """Read a checkpoint of full tensors in the main process; only the rest of it is sent to the others."""
    into.append(checkpoints.load(path))
    return into[0].step, into[0].state


def _document(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
        version, _, files, _ = (document[key] for key in ("version", "step", "files", "state"))
    except (OSError, ValueError, KeyError, TypeError):
        raise DamagedError(f"checkpoint {path} is damaged: state.json is missing or incomplete") from None
    if version != VERSION:
        raise RunError(f"checkpoint {path} was written by another version ({version}; this one reads {VERSION})")
    if not isinstance(files, dict) or not all(OWN_FILE.fullmatch(name) for name in files):
        raise DamagedError(f"checkpoint {path} is damaged: state.json names files that are none of its own")
    if document.pop("checksum", None) not in (None, checkpoints.digest(document)):
        raise DamagedError(f"checkpoint {path} is damaged: state.json has changed")
    return document


def _damage(path: Path, files: Mapping[str, str], group: ProcessGroup) -> str:
    """What is wrong with this process's share of the files; empty if nothing."""
    for name, digest in group.mine(sorted(files.items())):
        if not (path / name).is_file():
            where = "" if group.same_folder else " on this machine; all machines must share the run directory"
            return f"checkpoint {path} is damaged: {name} is missing{where}"
        if checkpoints.checksum(path / name) != digest:
            return f"checkpoint {path} is damaged: {name} is changed"
    return ""


# --- torch.distributed.checkpoint ---


def _write(folder: Path, tensors: Mapping[str, Tensor], group: ProcessGroup) -> None:
    """Write this process's shards; tensors that are not sharded are written by one process each."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        writer = HuggingFaceStorageWriter(str(folder), _file_numbers(tensors, group.world_size), save_distributed=True)
        save(_unshared(tensors), storage_writer=writer)
    except CheckpointException as error:
        raise RunError(f"cannot write {folder.parent}: {_reason(error)}") from None


def _file_numbers(tensors: Mapping[str, Tensor], processes: int) -> dict[str, int]:
    """Of the files that a process writes, the one for each tensor; a file is in memory twice while it is written."""
    number, size = 1, 0
    numbers = {}
    for name, tensor in tensors.items():
        own = tensor.numel() * tensor.element_size() // processes
        if size and size + own > FILE_BYTES:
            number, size = number + 1, 0
        numbers[name], size = number, size + own
    return numbers


def _read(folder: Path, like: Callable[[str], Tensor | None], group: ProcessGroup) -> dict[str, Tensor]:
    """The shards that this process needs of every tensor in a folder, from whichever files they are in."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    saved: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    shards = {name: _empty(each.size, each.properties.dtype, like(name)) for name, each in saved.items()}
    try:
        with warnings.catch_warnings(action="ignore"):  # it says that there is one process only
            load(shards, storage_reader=reader, no_dist=group.world_size == 1)
    except CheckpointException as error:
        raise DamagedError(f"checkpoint {folder.parent} is damaged: {_reason(error)}") from None
    return shards


def _empty(size: torch.Size, dtype: torch.dtype, like: Tensor | None) -> Tensor:
    """Room for a tensor, sharded as `like`; one of another shape is not sharded, and refused by who loads it."""
    if like is not None and like.shape == size:
        return torch.empty_like(like, dtype=dtype, requires_grad=False)
    return torch.empty(size, dtype=dtype)


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tied weights share memory, which safetensors refuses: each name gets its own copy."""
    from torch.distributed.tensor import DTensor

    seen: set[int] = set()
    own = {}
    for name, tensor in tensors.items():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        own[name] = tensor.detach().clone() if local.data_ptr() in seen else tensor.detach()
        seen.add(local.data_ptr())
    return own


def _reason(error: CheckpointException) -> str:
    """The first failure of a process, without its traceback."""
    problem = next(iter(error.failures.values()))[0]
    return getattr(problem, "strerror", None) or str(problem)
