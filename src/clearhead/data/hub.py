"""Get a dataset by name: from `$CLEARHEAD_DATA`, the cache or the web, or generate it.

    path = locate("tatoeba-en-es")     # a path for `--data`

A file gets its final name only when it is complete and its checksum is right; until then it is `NAME.part`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from clearhead.data import catalogue
from clearhead.data.archives import unpack_tar
from clearhead.data.catalogue import Entry, RemoteFile
from clearhead.data.download import Report, checksum, download
from clearhead.errors import DownloadError
from clearhead.files import cache_folder, lock_file

Origin = Literal["$CLEARHEAD_DATA", "cache", "download", "made"]
ARCHIVES = (".tar.xz", ".tar.gz")


@dataclass(frozen=True, slots=True)
class LocalDataset:
    """A dataset on this machine: its path, where it came from, and checksums recorded at the first download."""

    entry: Entry
    path: Path
    origin: Origin
    sums: dict[str, str] = field(default_factory=dict)


def locate(name: str) -> Path:
    """The file or folder to use as `--data`; downloads it the first time."""
    return get(name).path


def get(name: str | Entry, report: Report = lambda _what, _done, _total: None) -> LocalDataset:
    """Find a dataset on this machine, generate it, or download it; `report` is called with the progress."""
    entry = catalogue.find(name) if isinstance(name, str) else name
    with _disk_errors(entry):
        return _from_data_folder(entry, report) or _from_cache(entry) or _generated(entry) or _from_web(entry, report)


def origin(entry: Entry) -> Origin | None:
    """Where `get` would find the dataset without a download, None if nowhere."""
    if _data_files(entry):
        return "$CLEARHEAD_DATA"
    return "cache" if _from_cache(entry) else "made" if entry.make else None


def _data_files(entry: Entry) -> list[Path]:
    """The files of an entry below `$CLEARHEAD_DATA`, empty if one is missing."""
    folder = os.environ.get("CLEARHEAD_DATA")
    files = [Path(folder).expanduser() / name for name in entry.local] if folder else []
    return files if all(file.is_file() for file in files) else []


def _from_data_folder(entry: Entry, report: Report) -> LocalDataset | None:
    """Use files in place if a reader can open them; unpack archives into the cache, once."""
    files = _data_files(entry)
    if not files:
        return None
    if any(file.name.endswith(ARCHIVES) for file in files):
        return LocalDataset(entry, _unpacked(entry, files, report) / entry.inside, "$CLEARHEAD_DATA")
    return LocalDataset(entry, _common_path(files), "$CLEARHEAD_DATA")


def _from_cache(entry: Entry) -> LocalDataset | None:
    files = _results(entry)
    return (
        LocalDataset(entry, _common_path(files), "cache") if files and all(file.is_file() for file in files) else None
    )


def _results(entry: Entry) -> list[Path]:
    """The files in the cache when everything has been generated or downloaded."""
    names = [entry.made_file] if entry.make else [name for file in entry.files for name in file.results]
    return [cache_folder("data") / entry.name / name for name in names]


def _common_path(files: list[Path]) -> Path:
    """The single file, or the folder of several."""
    return files[0] if len(files) == 1 else files[0].parent


def _unpacked(entry: Entry, files: list[Path], report: Report) -> Path:
    """The folder in the cache with the unpacked archives of an entry and copies of its other files."""
    folder = cache_folder("data") / entry.name / "unpacked"
    if folder.is_dir():
        return folder
    with _locked(folder.parent):
        if not folder.is_dir():  # another process may have done it while this one waited for the lock
            with _temporary_folder(folder.parent) as unfinished:
                for file in files:
                    if file.name.endswith(ARCHIVES):
                        unpack_tar(file, unfinished, report)
                    else:
                        shutil.copyfile(file, unfinished / file.name)
                unfinished.rename(folder)
    return folder


def _generated(entry: Entry) -> LocalDataset | None:
    """Write generated data to the cache."""
    if entry.make is None:
        return None
    [file] = _results(entry)
    with _locked(file.parent), _temporary_folder(file.parent) as unfinished:
        if not file.is_file():  # another process may have done it while this one waited for the lock
            with (unfinished / file.name).open("w", encoding="utf-8", newline="\n") as text:
                text.writelines(f"{line}\n" for line in entry.make())
            (unfinished / file.name).replace(file)
    return LocalDataset(entry, file, "made")


def _from_web(entry: Entry, report: Report) -> LocalDataset:
    if not entry.files:
        raise DownloadError(f"{entry.name} cannot be downloaded; put {', '.join(entry.local)} below $CLEARHEAD_DATA")
    folder = cache_folder("data") / entry.name
    with _locked(folder):
        for file in entry.files:
            if not all((folder / name).is_file() for name in file.results):
                _fetch(file, folder, report)
        sums = {file.name: _recorded(file, folder) for file in entry.files if not file.checksum}
    return LocalDataset(entry, _common_path(_results(entry)), "download", sums)


def _fetch(file: RemoteFile, folder: Path, report: Report) -> None:
    """Download one file, compare its checksum, and only then give the results their final names."""
    part = folder / f"{file.name}.part"
    expected, begun = file.checksum or _recorded(file, folder), part.exists()
    download(file.address, part, report, file.size)
    if begun and expected and _checksum_like(part, expected) != expected:
        part.unlink()  # the part was of another version of the file: start again
        download(file.address, part, report, file.size)
    if expected and (actual := _checksum_like(part, expected)) != expected:
        part.unlink()
        raise DownloadError(_wrong_bytes(file, folder, expected, actual))
    first = "" if expected else checksum(part)
    _finish(file, part, folder)
    if first:
        _record(file, folder).write_text(first + "\n", encoding="ascii")


def _finish(file: RemoteFile, part: Path, folder: Path) -> None:
    """Turn a verified download into its results; each appears complete or not at all."""
    if not file.recipe:
        part.replace(folder / file.name)
        return
    with _temporary_folder(folder) as unfinished:
        try:
            file.recipe.make(part, unfinished)
        except DownloadError:
            part.unlink()  # a broken archive: resuming from it would not help
            raise
        for name in file.recipe.makes:
            with (unfinished / name).open("r+b") as made:
                os.fsync(made.fileno())
            (unfinished / name).replace(folder / name)
    part.unlink()


def _record(file: RemoteFile, folder: Path) -> Path:
    """Where the checksum of the first download is recorded for a file without a published one."""
    return folder / f"{file.name}.sha256"


def _recorded(file: RemoteFile, folder: Path) -> str:
    record = _record(file, folder)
    return record.read_text(encoding="ascii").strip() if record.exists() else ""


def _checksum_like(path: Path, like: str) -> str:
    return checksum(path, like.partition(":")[0])


def _wrong_bytes(file: RemoteFile, folder: Path, expected: str, actual: str) -> str:
    sentence = f"{file.address} has the wrong checksum ({actual} instead of {expected}); nothing was kept"
    if file.checksum:
        return f"{sentence}, try again later or put the data below $CLEARHEAD_DATA"
    return f"{sentence}, delete {_record(file, folder)} to accept the new version"


@contextmanager
def _disk_errors(entry: Entry) -> Iterator[None]:
    """Turn a full or read-only disk into a DownloadError."""
    try:
        yield
    except OSError as problem:
        where = problem.filename or cache_folder("data") / entry.name
        reason = (problem.strerror or str(problem)).lower()
        raise DownloadError(
            f"cannot read or write {where}: {reason}; make room there or set CLEARHEAD_CACHE to another folder"
        ) from problem


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the final one, on the same disk so that renaming is atomic; deleted afterwards."""
    path = Path(tempfile.mkdtemp(prefix=f"{folder.name}-unfinished-", dir=folder.parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock: a second process waits, then finds the work done."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        lock_file(lock, wait=True)
        for left in folder.parent.glob(f"{folder.name}-unfinished-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        yield
