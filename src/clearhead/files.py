"""Files on disk: written whole or not at all, with one sentence where that fails; and the folder of the cache.

with write_errors(path): ...             a full disk or a forbidden folder becomes a RunError
write_text, write_tensors                the file appears under its name only when it is complete and synced
append_line, read_lines                  JSON lines; a line that a killed process left unfinished is skipped
cache_folder("downloads")                $CLEARHEAD_CACHE, or the operating system's cache folder
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor


def cache_folder(part: str) -> Path:
    """The folder of one kind of cached files; everything in it can be made again."""
    if chosen := os.environ.get("CLEARHEAD_CACHE"):
        return Path(chosen).expanduser() / part
    if sys.platform == "win32":
        system = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        system = "~/Library/Caches"
    else:
        system = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(system).expanduser() / "clearhead" / part


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn a failed write into one sentence."""
    try:
        yield
    except RunError:
        raise
    except Exception as problem:
        if not isinstance(problem, OSError) and type(problem).__name__ != "SafetensorError":
            raise
        reason = getattr(problem, "strerror", None) or problem
        raise RunError(f"cannot write {path}: {reason}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    from safetensors.torch import save_file

    with _replacing(path) as temporary:
        save_file(_unshared(tensors), temporary, dict(metadata or {}))
        if metadata:
            _sort_metadata(temporary)


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tied weights share memory, which safetensors refuses: each further name gets a copy."""
    memory: set[int] = set()
    own = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        own[name] = tensor.clone() if place in memory else tensor
        memory.add(place)
    return own


def _sort_metadata(path: Path) -> None:
    """safetensors writes the metadata in a random order; sorted, equal tensors are equal files."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        file.seek(8)
        file.write(text.ljust(size))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        raise RunError(f"{path} is damaged or not a safetensors file ({problem})") from None


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line of JSON."""
    with write_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON lines file, none if it does not exist."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):
            yield json.loads(line)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside the final one, synced and renamed at the end."""
    with write_errors(path):
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
