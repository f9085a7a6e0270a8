"""From a download to what a reader takes: files out of archives, two columns out of three, pixels out of bytes.

Nothing is ever written to a name that an archive chose: downloads give up single members, read one by one into
names of ours; whole archives (the user's own) pass through tarfile's data filter.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from clearhead.data.download import Report
from clearhead.errors import DownloadError

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_SHAPE = (3, 32, 32)  # (C, H, W): one byte of class, then the planes of red, green and blue
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, KeyError)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a download becomes files: `make(download, folder)` writes each of `makes` into the folder."""

    makes: tuple[str, ...]
    make: Callable[[Path, Path], None]


def members(names: Mapping[str, str]) -> Recipe:
    """Take single members out of a zip: our name -> name in the archive."""

    def make(download: Path, folder: Path) -> None:
        with _reading(download), zipfile.ZipFile(download) as archive:
            for name, member in names.items():
                with archive.open(member) as source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)

    return Recipe(tuple(names), make)


def pairs(name: str, member: str) -> Recipe:
    """Take tab-separated pairs out of a zip, without the third column that names each sentence's author."""

    def make(download: Path, folder: Path) -> None:
        with _reading(download), zipfile.ZipFile(download) as archive, archive.open(member) as source:
            _rewrite(source, folder / name, lambda line: b"\t".join(line.split(b"\t")[:2]))

    return Recipe((name,), make)


def coarse(name: str) -> Recipe:
    """Keep the six coarse classes of TREC: `DESC:manner How …` becomes `DESC How …`."""

    def make(download: Path, folder: Path) -> None:
        with download.open("rb") as source:
            _rewrite(source, folder / name, _coarse_line)

    return Recipe((name,), make)


def cifar(name: str) -> Recipe:
    """Make arrays of CIFAR-10's five binary training batches (the Python version is a pickle: never opened)."""

    def make(download: Path, folder: Path) -> None:
        with _reading(download), tarfile.open(download) as archive:
            batches = [_member(archive, f"cifar-10-batches-bin/data_batch_{number}.bin") for number in range(1, 6)]
        images, labels = cifar_arrays(b"".join(batches))
        np.savez(folder / name, images=images, labels=labels, names=np.array(CIFAR_CLASSES))

    return Recipe((name,), make)


def cifar_arrays(records: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Split records of one class byte and 3072 pixel bytes into images (N, 32, 32, 3) and labels (N,)."""
    record = 1 + int(np.prod(CIFAR_SHAPE))
    if not records or len(records) % record:
        raise DownloadError(f"CIFAR-10 has {len(records)} bytes, which is no multiple of {record}; get it again")
    rows = np.frombuffer(records, dtype=np.uint8).reshape(-1, record)  # (N, 3073)
    images = rows[:, 1:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1)  # (N, H, W, C)
    return np.ascontiguousarray(images), rows[:, 0].astype(np.int64)


def unpack_tar(archive_path: Path, folder: Path, report: Report) -> None:
    """Unpack a whole tar archive; a member that would land outside the folder is refused."""
    size = archive_path.stat().st_size
    with _reading(archive_path), archive_path.open("rb") as packed, tarfile.open(fileobj=packed) as archive:
        position = 0
        for member in archive:
            archive.extract(member, folder, filter="data")
            if packed.tell() != position:
                position = packed.tell()
                report(f"unpacking {archive_path.name}", position, size)


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    """Say in one sentence what is wrong with an archive."""
    try:
        yield
    except tarfile.FilterError as problem:
        raise DownloadError(f"{archive}: {problem}; the archive is not to be trusted, nothing was kept") from problem
    except _BROKEN as problem:
        reason = problem.args[0] if problem.args else type(problem).__name__
        raise DownloadError(f"{archive} cannot be unpacked: {reason}; get it again") from problem


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    source = archive.extractfile(name)
    if source is None:
        raise KeyError(f"{name} is not a file")
    with source:
        return source.read()


def _rewrite(source: IO[bytes], target: Path, change: Callable[[bytes], bytes]) -> None:
    with target.open("wb") as out:
        out.writelines(change(line.rstrip(b"\r\n")) + b"\n" for line in source)


def _coarse_line(line: bytes) -> bytes:
    label, _, text = line.partition(b" ")
    return label.split(b":")[0] + b" " + text
