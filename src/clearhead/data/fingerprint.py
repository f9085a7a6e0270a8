"""Whether the files of a dataset are still what they were: a run that resumes on other data is another run.

before = fingerprints(sources, run)            {path: what the file was}
changed(before, fingerprints(sources, run))    what happened to which file, in words
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from clearhead.data.source import Source

HASHED = 1 << 30  # bytes whose content is compared; of files beyond these, only size and time of change


def fingerprints(sources: Sequence[Source], but: Path) -> dict[str, str]:
    """The size and a hash of each file, by its path; of a folder around `but`, without what is in there."""
    found, left = {}, HASHED
    for path in sorted(_files(sources, but)):
        try:
            status = path.stat()
            left -= status.st_size
            found[str(path)] = f"{status.st_size} {_hash(path) if left >= 0 else status.st_mtime_ns}"
        except OSError:
            found[str(path)] = "unreadable"
    return found


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """`a.txt has changed`, `b.txt is new`, `c.txt is gone`."""
    sentences = []
    for path in sorted({*before, *now}):
        if before.get(path) != now.get(path):
            what = "is new" if path not in before else "is gone" if path not in now else "has changed"
            sentences.append(f"{path} {what}")
    return sentences


def _files(sources: Sequence[Source], but: Path) -> Iterator[Path]:
    for path in (path.absolute() for source in sources for path in source.paths):
        around = but.absolute().is_relative_to(path)
        for file in path.rglob("*") if path.is_dir() else (path,):
            if file.is_file() and not (around and file.is_relative_to(but.absolute())):
                yield file


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
