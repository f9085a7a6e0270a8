"""Files on disk: written whole or not at all, with one sentence where that fails; and the folder of the cache.

with write_errors(path): ...             a full disk or a forbidden folder becomes a RunError
write_text, write_tensors                the file appears under its name only when it is complete and synced
append_line, read_lines, keep_lines      JSON lines; a line that a killed process left unfinished is skipped
remove_leftovers(folder)                 what writes that were killed have left there
with locked(path, "… is in use"): ...    one process at a time; the operating system frees the lock of a killed one
cache_folder("downloads")                $CLEARHEAD_CACHE, or the operating system's cache folder
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from clearhead.errors import InUseError, RunError

if TYPE_CHECKING:
    from torch import Tensor


MAX_HEADER = 1 << 24  # bytes of the header of a safetensors file: some 100,000 tensors


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


def regular_file(path: Path, folder: Path) -> Path:
    """The path of a file in `folder`, if it is one: no pipe or device, and no link that leads out of the folder."""
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise RunError(f"{path} is a link to {os.path.realpath(path)}, outside of {folder}; copy the file instead")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RunError(f"{path} is not a file")
    except FileNotFoundError:
        pass  # whoever opens it says so
    except OSError as problem:
        raise RunError(f"cannot read {path}: {problem.strerror or problem}") from None
    return path


def read_tensors(path: Path, mapped: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file.

    `mapped` may be the key of metadata that names tensors of bytes in a JSON object: these stay in the file, from which
    the system reads them when they are used.
    """
    from safetensors import SafetensorError, safe_open

    try:
        _check_header(path)
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            bytes_of = _map_bytes(path, metadata.get(mapped, "{}")) if mapped else {}
            names = set(file.keys()) - bytes_of.keys()
            return {**{name: file.get_tensor(name) for name in sorted(names)}, **bytes_of}, metadata
    except (SafetensorError, OSError) as problem:
        raise RunError(f"{path} is damaged or not a safetensors file ({problem})") from None


def _map_bytes(path: Path, names: str) -> dict[str, Tensor]:
    """The named tensors of uint8 in a file that safetensors has checked; other names are left out."""
    import numpy as np
    import torch

    with suppress(ValueError, RecursionError):
        wanted = json.loads(names)
        content = np.memmap(path, np.uint8, "c")  # copy on write: torch has no tensors that are only read
        size = int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8 : 8 + size].tobytes())
        places = {name: header[name] for name in wanted if header.get(name, {}).get("dtype") == "U8"}
        begin, found = 8 + size, {}
        for name, place in places.items():
            first, last = place["data_offsets"]
            found[name] = torch.from_numpy(content[begin + first : begin + last]).view(place["shape"])
        return found
    return {}


def _check_header(path: Path) -> None:
    """Refuse a header that alone would take gigabytes to read."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER:
        raise RunError(f"{path} is damaged or not a safetensors file (a header of {size:,} bytes)")


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line of JSON."""
    with write_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON lines file, none if it does not exist."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def keep_lines(path: Path, size: int) -> int:
    """Cut a JSON lines file to its whole records within the first `size` bytes; returns how many bytes are missing.

    A file that was not synced before the power failed can be shorter than it was, or end in zeros.
    """
    before = path.read_bytes() if path.is_file() else b""
    kept = b"".join(line for line in before[:size].splitlines(keepends=True) if _is_record(line))
    if kept != before:
        with _replacing(path) as temporary:
            temporary.write_bytes(kept)
    return size - len(kept)


def _is_record(line: bytes) -> bool:
    with suppress(ValueError, RecursionError):
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    return False


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


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files and folders of writes that were killed; nobody may be writing there."""
    for path in folder.glob(".*"):
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


_LEFTOVER = re.compile(r"\..+\.(\d+|part)")  # .NAME.PID of a file, .NAME.part of a folder


# --- locks ---


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock of this file; if another process has it, raise `busy` and who it is."""
    with write_errors(path):
        file = _open_lock(path, busy)
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _open_lock(path: Path, busy: str) -> IO[str]:
    """The locked file, with the process that holds it written in."""
    while True:
        file = path.open("a+", encoding="utf-8")
        if not lock_file(file, wait=False):
            file.seek(0)
            owner = file.read(100).strip()
            file.close()
            raise InUseError(f"{busy} ({owner})" if owner else busy)
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        file.close()  # its owner deleted it when it was done: lock the new one
    file.truncate(0)
    host = os.environ.get("COMPUTERNAME", "") if sys.platform == "win32" else os.uname().nodename
    file.write(f"process {os.getpid()} on {host}")
    file.flush()
    return file


if sys.platform == "win32":

    def lock_file(file: IO[str], wait: bool) -> bool:
        """Lock an open file until it is closed; False if another process has locked it and we do not wait."""
        import msvcrt

        while True:
            try:
                file.seek(1000)  # not the name of the owner, which others read
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False
                time.sleep(0.1)

else:

    def lock_file(file: IO[str], wait: bool) -> bool:
        """Lock an open file until it is closed; False if another process has locked it and we do not wait."""
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            # A file system without locks: there is nothing to wait for.
        return True
