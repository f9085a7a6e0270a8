"""Where data lies: a file or folder of this machine, a known dataset by its name, or several of them joined by `+`.

    located("multi30k", Reading())          # one place
    located("wikitext2+my.txt", Reading())  # two, for running text

A name is looked for below `$CLEARHEAD_DATA` and in the cache, and else downloaded; a file or folder called so wins,
unless it is a run directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clearhead.data import pairs
from clearhead.data.catalogue import CATALOGUE, Use
from clearhead.data.files import Reading, existing
from clearhead.data.get import get
from clearhead.errors import DataError

BUILTIN = "builtin"  # the path that names the data of the package itself


@dataclass(frozen=True, slots=True)
class Place:
    """What the user calls some data, where it lies, and how it is to be read."""

    name: str
    path: str | Path  # text where it is no single path: `builtin`, and two aligned files `a,b`
    reading: Reading


def located(path: str | Path, reading: Reading) -> tuple[Place, ...]:
    """The one place that a path or a name stands for, or the places of `a+b`."""
    if path == BUILTIN or pairs.two_files(path):
        return (Place(str(path), path, reading),)
    return tuple(_place(part, reading) for part in _parts(path))


def only(places: Sequence[Place]) -> Place:
    """The place, where there has to be one."""
    if len(places) > 1:
        message = f"is {len(places)} places joined by +, which only running text can be; give one of them"
        raise DataError(message, path=called(places))
    return places[0]


def called(places: Sequence[Place]) -> str:
    """What the user says for these places."""
    return "+".join(place.name for place in places)


def _parts(path: str | Path) -> list[str] | list[str | Path]:
    """The parts of `a+b`; what is there as it is, or has no part that is, is one path."""
    parts = [part.strip() for part in str(path).split("+")]
    joined = isinstance(path, str) and all(parts) and not _is_there(path)
    return parts if joined and any(_is_known(part) for part in parts) else [path]


def _place(path: str | Path, reading: Reading) -> Place:
    if path == BUILTIN:
        return Place(BUILTIN, BUILTIN, reading)
    if isinstance(path, str) and path in CATALOGUE and (not _is_there(path) or _is_run(path)):
        found = get(path)
        return Place(path, found.path, _filled(reading, found.entry.use))
    return Place(str(path), existing(path, CATALOGUE), reading)


def _filled(reading: Reading, use: Use) -> Reading:
    """What the user left open, as the dataset needs it; a side that the user chose is not the other side, too."""
    encoding = reading.encoding if reading.encoding != Reading().encoding else use.encoding or reading.encoding
    source = reading.source or (use.target if reading.target == use.source else use.source)
    target = reading.target or (use.source if source == use.target else use.target)
    return Reading(encoding, source, target)


def _is_known(name: str) -> bool:
    return name == BUILTIN or name in CATALOGUE or _is_there(name)


def _is_run(path: str) -> bool:
    """Whether a folder is a trained model: `clearhead train trec.yaml --out trec` does not learn from its own run."""
    return (Path(path) / "config.yaml").is_file()


def _is_there(path: str | Path) -> bool:
    with suppress(OSError, ValueError):  # what cannot be looked for is refused by its reader, with the reason
        return Path(path).exists()
    return False
