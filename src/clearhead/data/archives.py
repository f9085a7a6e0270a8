"""Archives, whose content nobody has to trust: how large they may become, and where their files may land."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from clearhead.data.download import Report
from clearhead.errors import DownloadError

MAX_GROWTH = 100  # times the size of the archive, and
MAX_SPARE = 1 << 30  # bytes more
MAX_ENTRIES = 2_000_000
# What `tarfile` and `zipfile` raise for damaged archives: also ValueError for fields, and RuntimeError for an encrypted
# member or an unknown compression.
BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError),
    *(KeyError, ValueError, OverflowError, RuntimeError),
)


class UnsafeError(Exception):
    """An archive that holds what no dataset needs."""


@contextmanager
def archive_errors(archive: Path) -> Iterator[None]:
    """Turn errors of archives into a DownloadError."""
    try:
        yield
    except UnsafeError as problem:
        raise DownloadError(f"{archive}: {problem}; the archive is not safe, nothing was kept") from problem
    except BROKEN as problem:
        reason = (problem.args[0] if isinstance(problem, KeyError) else str(problem)) or type(problem).__name__
        raise DownloadError(f"{archive} cannot be unpacked: {reason}; download it again") from problem


def unpack_tar(archive_path: Path, folder: Path, report: Report) -> None:
    """Unpack the files of a tar archive; links, devices, and names that lead out of the folder are errors.

    This does not rely on the filters of `tarfile`: those of Python before 3.11.13 let links lead outside.
    """
    size, position, unpacked = archive_path.stat().st_size, 0, 0
    with archive_errors(archive_path), archive_path.open("rb") as packed, tarfile.open(fileobj=packed) as archive:
        for number, member in enumerate(archive, start=1):
            target = folder / _safe_name(member)
            unpacked += member.size
            check_unpacked(unpacked, size, number)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                source = archive.extractfile(member)
                assert source is not None
                with source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
            archive.members = []  # type: ignore[attr-defined]  # or an archive of many entries would fill the memory
            if packed.tell() != position:
                position = packed.tell()
                report(f"unpacking {archive_path.name}", position, size)


def check_unpacked(unpacked: int, packed: int, entries: int = 1) -> None:
    """Refuse an archive that becomes far larger than it is."""
    if unpacked > MAX_GROWTH * packed + MAX_SPARE:
        raise UnsafeError(f"its {packed:,} bytes become more than {unpacked:,}")
    if entries > MAX_ENTRIES:
        raise UnsafeError(f"it has more than {MAX_ENTRIES:,} entries")


def _safe_name(member: tarfile.TarInfo) -> PurePosixPath:
    """The name of a file or folder below the one that it is unpacked to."""
    name = PurePosixPath(member.name)
    windows = PureWindowsPath(member.name)
    if name.is_absolute() or windows.drive or windows.root or ".." in (*name.parts, *windows.parts):
        raise UnsafeError(f"{member.name!r} lies outside the destination")
    if not (member.isfile() or member.isdir()):
        raise UnsafeError(f"{member.name!r} is neither a file nor a folder")
    return name
