"""Find a dataset by name: below `$CLEARHEAD_DATA`, else in the cache, else on the web, or make it.

    path = locate("tatoeba-en-es")     # what `--data` takes

A file is under its final name only when it is whole and its checksum has been compared; until then it is `NAME.part`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from clearhead.data import catalogue
from clearhead.data.catalogue import Entry, RemoteFile
from clearhead.data.download import Report, checksum, download
from clearhead.data.unpack import unpack_tar
from clearhead.errors import DownloadError
from clearhead.files import cache_folder

Origin = Literal["$CLEARHEAD_DATA", "cache", "download", "made"]
ARCHIVES = (".tar.xz", ".tar.gz")


@dataclass(frozen=True, slots=True)
class Found:
    """A dataset that is ready: where it lies, how it came there, and sums that nobody else publishes."""

    entry: Entry
    path: Path
    origin: Origin
    sums: dict[str, str] = field(default_factory=dict)


def locate(name: str) -> Path:
    """The file or folder to use as `--data`; downloads it the first time."""
    return get(name).path


def get(name: str | Entry, report: Report = lambda _what, _done, _total: None) -> Found:
    """Find a dataset, or make or download it."""
    entry = catalogue.find(name) if isinstance(name, str) else name
    with _using_disk(entry):
        return _from_data_folder(entry, report) or _from_cache(entry) or _made(entry) or _from_web(entry, report)


def origin(entry: Entry) -> Origin | None:
    """Where `get` would find the dataset without the web, if anywhere."""
    if _data_files(entry):
        return "$CLEARHEAD_DATA"
    return "cache" if _from_cache(entry) else "made" if entry.make else None


def _data_files(entry: Entry) -> list[Path]:
    """The entry's files below `$CLEARHEAD_DATA`, or none if one is missing."""
    folder = os.environ.get("CLEARHEAD_DATA")
    files = [Path(folder).expanduser() / name for name in entry.local] if folder else []
    return files if all(file.is_file() for file in files) else []


def _from_data_folder(entry: Entry, report: Report) -> Found | None:
    """Files that a reader can open are used where they lie; archives are unpacked into the cache, once."""
    files = _data_files(entry)
    if not files:
        return None
    if any(file.name.endswith(ARCHIVES) for file in files):
        return Found(entry, _unpacked(entry, files, report) / entry.inside, "$CLEARHEAD_DATA")
    return Found(entry, _together(files), "$CLEARHEAD_DATA")


def _from_cache(entry: Entry) -> Found | None:
    files = _results(entry)
    return Found(entry, _together(files), "cache") if files and all(file.is_file() for file in files) else None


def _results(entry: Entry) -> list[Path]:
    """The files in the cache when everything has been made or downloaded."""
    names = [f"{entry.name}.txt"] if entry.make else [name for file in entry.files for name in file.results]
    return [cache_folder("data") / entry.name / name for name in names]


def _together(files: list[Path]) -> Path:
    """One file is the dataset; several are the folder they share."""
    return files[0] if len(files) == 1 else files[0].parent


def _unpacked(entry: Entry, files: list[Path], report: Report) -> Path:
    """The cache's folder with everything of the entry: archives unpacked, other files copied beside them."""
    folder = cache_folder("data") / entry.name / "unpacked"
    if folder.is_dir():
        return folder
    with _locked(folder.parent):
        if not folder.is_dir():  # nobody else did it while this call waited
            with _unfinished(folder.parent) as unfinished:
                for file in files:
                    if file.name.endswith(ARCHIVES):
                        unpack_tar(file, unfinished, report)
                    else:
                        shutil.copyfile(file, unfinished / file.name)
                unfinished.rename(folder)
    return folder


def _made(entry: Entry) -> Found | None:
    """Write a text that needs no web."""
    if entry.make is None:
        return None
    [file] = _results(entry)
    with _locked(file.parent), _unfinished(file.parent) as unfinished:
        if not file.is_file():  # nobody else did it while this call waited
            with (unfinished / file.name).open("w", encoding="utf-8", newline="\n") as text:
                text.writelines(f"{line}\n" for line in entry.make())
            (unfinished / file.name).replace(file)
    return Found(entry, file, "made")


def _from_web(entry: Entry, report: Report) -> Found:
    if not entry.files:
        raise DownloadError(f"{entry.name} cannot be downloaded; put {', '.join(entry.local)} below $CLEARHEAD_DATA")
    folder = cache_folder("data") / entry.name
    with _locked(folder):
        for file in entry.files:
            if not all((folder / name).is_file() for name in file.results):
                _fetch(file, folder, report)
        sums = {file.name: _recorded(file, folder) for file in entry.files if not file.checksum}
    return Found(entry, _together(_results(entry)), "download", sums)


def _fetch(file: RemoteFile, folder: Path, report: Report) -> None:
    """Download one file, compare its checksum, and only then give its results their final names."""
    part = folder / f"{file.name}.part"
    expected, begun = file.checksum or _recorded(file, folder), part.exists()
    download(file.address, part, report, file.size)
    if begun and expected and _sum(part, expected) != expected:
        part.unlink()  # the beginning was of another version of the file: once more from the start
        download(file.address, part, report, file.size)
    if expected and (actual := _sum(part, expected)) != expected:
        part.unlink()
        raise DownloadError(_wrong_bytes(file, folder, expected, actual))
    first = "" if expected else checksum(part)
    _finish(file, part, folder)
    if first:
        _record(file, folder).write_text(first + "\n", encoding="ascii")


def _finish(file: RemoteFile, part: Path, folder: Path) -> None:
    """Make the results of a download that is known to be right; each appears whole or not at all."""
    if not file.recipe:
        part.replace(folder / file.name)
        return
    with _unfinished(folder) as unfinished:
        try:
            file.recipe.make(part, unfinished)
        except DownloadError:
            part.unlink()  # not an archive of what it should be: going on from it would not help
            raise
        for name in file.recipe.makes:
            with (unfinished / name).open("r+b") as made:
                os.fsync(made.fileno())
            (unfinished / name).replace(folder / name)
    part.unlink()


def _record(file: RemoteFile, folder: Path) -> Path:
    """Where the first download's sum is remembered for a file that nobody publishes one for."""
    return folder / f"{file.name}.sha256"


def _recorded(file: RemoteFile, folder: Path) -> str:
    record = _record(file, folder)
    return record.read_text(encoding="ascii").strip() if record.exists() else ""


def _sum(path: Path, like: str) -> str:
    return checksum(path, like.partition(":")[0])


def _wrong_bytes(file: RemoteFile, folder: Path, expected: str, actual: str) -> str:
    sentence = f"{file.address} is not the file it should be ({actual} instead of {expected}); nothing was kept"
    if file.checksum:
        return f"{sentence}, try again later or put the data below $CLEARHEAD_DATA"
    return f"{sentence}, delete {_record(file, folder)} if you want the new version"


@contextmanager
def _using_disk(entry: Entry) -> Iterator[None]:
    """A full or forbidden disk is a mistake that a user can mend."""
    try:
        yield
    except OSError as problem:
        where = problem.filename or cache_folder("data") / entry.name
        reason = (problem.strerror or str(problem)).lower()
        raise DownloadError(
            f"cannot read or write {where}: {reason}; make room there or set CLEARHEAD_CACHE to another folder"
        ) from problem


@contextmanager
def _unfinished(folder: Path) -> Iterator[Path]:
    """A place for work under way, beside the folder and so on the same disk; gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix=f"{folder.name}-unfinished-", dir=folder.parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock: a second call waits, then finds everything done."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        _wait_for(lock)
        yield


if sys.platform == "win32":

    def _wait_for(lock: IO[str]) -> None:
        """Take the lock, which ends with the file; Windows itself waits no longer than ten seconds."""
        import msvcrt

        while True:
            try:
                return msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
            except OSError:
                continue

else:

    def _wait_for(lock: IO[str]) -> None:
        """Take the lock, which ends with the file."""
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
