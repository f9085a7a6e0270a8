"""Translation pairs: two columns of a table, or two files whose lines belong together.

A folder holds `train.en` and `train.de`, perhaps `val.en` and `val.de` beside them, or tables such as `train.tsv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from clearhead.data import names
from clearhead.data.columns import Table, inspect, shown
from clearhead.data.examples import Pair
from clearhead.data.files import Reading, existing, files_in, lines
from clearhead.data.folders import parts_of
from clearhead.data.splits import Parts, own_parts
from clearhead.errors import ConfigError, DataError, nearest

Side = TypeVar("Side", int, str)  # the place of a column, or a language

_ADVICE = "choose with --source and --target (data.source=… data.target=…)"


def read(path: str | Path, reading: Reading) -> Parts[Pair]:
    """All pairs of a file, of two files `a,b`, or of a folder."""
    if files := two_files(path):
        return Parts(list(_aligned(*files, reading.encoding)), None)
    path = existing(path)
    if path.is_dir() and (found := aligned_files(path, reading)):
        return _read_aligned_folder(path, found, reading)
    parts = parts_of(path)
    held_out = None if parts.validation is None else _from_tables(parts.validation, reading)
    return Parts(_from_tables(parts.train, reading), held_out)


def two_files(path: str | Path) -> tuple[Path, Path] | None:
    """The two aligned files of `a,b`; None when the path is one file or folder."""
    halves = str(path).split(",")
    if len(halves) != 2 or not all(halves) or Path(path).exists():
        return None
    first, second = (existing(half.strip()) for half in halves)
    for file in (first, second):
        if file.is_dir():
            raise DataError("is a folder; two aligned files are needed", path=file)
    return first, second


def aligned_files(folder: Path, reading: Reading) -> dict[str, dict[str, Path]]:
    """Files named `stem.language`: stem -> language -> file; nothing unless some stem has two languages."""
    wanted = {name.casefold() for name in (reading.source, reading.target) if name}
    found: dict[str, dict[str, Path]] = {}
    for entry in files_in(folder):
        stem, dot, language = names.bare(entry).rpartition(".")
        known = names.is_language(language) or language in names.SOURCE | names.TARGET | wanted
        if dot and known:
            found.setdefault(stem, {})[language] = entry
    return found if any(len(files) > 1 for files in found.values()) else {}


def likely_columns(table: Table) -> list[int]:
    """The columns that may be a side: by their names, else the only two."""
    return named_sides(table) or ([0, 1] if table.width == 2 or has_attribution(table) else [])


def named_sides(table: Table) -> list[int]:
    """The columns called source and target, else those named after two languages or more."""
    source, target = table.named(names.SOURCE), table.named(names.TARGET)
    if source is not None and target is not None:
        return [source, target]
    languages = [place for place, name in enumerate(table.names) if names.is_language(name)]
    return languages if len(languages) > 1 else []


def has_attribution(table: Table) -> bool:
    """Whether the third of three columns only says where each pair is from, as in Tatoeba's files."""
    return table.width == 3 and all("CC-BY" in value or "tatoeba" in value.lower() for value in table.values(2))


def sides(table: Table, reading: Reading) -> tuple[int, int]:
    """The places of the source and the target column."""
    source, target = (table.column(name) if name else None for name in (reading.source, reading.target))
    some = ", ".join(shown(table.called(place)) for place in range(min(table.width, 12)))
    trouble = f"has the columns {some}" if table.width > 1 else "has one column where a pair needs two"
    return _two(likely_columns(table), source, target, trouble, table.path)


def languages_of(path: str | Path, reading: Reading) -> tuple[str, str] | None:
    """The two languages, where files or columns are named after them."""
    if two_files(path):
        return None
    path = Path(path)
    if path.is_dir() and (found := aligned_files(path, reading)):
        return _languages(path, found, reading)
    table = inspect_pairs(parts_of(path).train[0], reading)
    source, target = sides(table, reading)
    return (table.names[source], table.names[target]) if table.names else None


def inspect_pairs(path: Path, reading: Reading) -> Table:
    """Open a table of pairs; a file without a header may name its languages itself: `en-es.tsv`."""
    by_name = re.fullmatch(r"([a-z]{2})[-_]([a-z]{2})", names.bare(path).partition(".")[0])
    languages = by_name.groups() if by_name and all(map(names.is_language, by_name.groups())) else ()
    table = inspect(path, reading)
    if table.names or not languages or len(likely_columns(table)) != 2:
        return table
    return replace(table, names=(*languages, *("attribution",) * (table.width - 2)))


def _two(
    likely: Sequence[Side], source: Side | None, target: Side | None, trouble: str, path: Path
) -> tuple[Side, Side]:
    """Complete what the user said from what is likely; when that is not just two, say what there is."""
    if source is not None and source == target:
        raise ConfigError(f"{path}: source and target are the same")
    if source is not None and target is not None:
        return source, target
    left = [side for side in likely if side not in (source, target)]
    if len(likely) != 2 or len(left) != (source is None) + (target is None):
        raise DataError(f"{trouble}; {_ADVICE}", path=path)
    source = left.pop(0) if source is None else source
    return source, left.pop(0) if target is None else target


def _from_tables(files: Sequence[Path], reading: Reading) -> list[Pair]:
    pairs = []
    for file in files:
        table = inspect_pairs(file, reading)
        pairs += [Pair(source, target, line) for line, (source, target) in table.texts(*sides(table, reading))]
    return pairs


def _languages(folder: Path, found: dict[str, dict[str, Path]], reading: Reading) -> tuple[str, str]:
    """Which two languages of a folder to read."""
    available = sorted({language for files in found.values() for language in files})
    trouble = f"holds {', '.join(available)}"
    given = [name and name.casefold() for name in (reading.source, reading.target)]
    for wanted in given:
        if wanted and wanted not in available:
            raise DataError(f"{trouble}, not {wanted}; {nearest(wanted, available)}", path=folder)
    likely = sorted(available, key=lambda name: name in names.TARGET)
    return _two(likely, given[0], given[1], trouble, folder)


def _read_aligned_folder(folder: Path, found: dict[str, dict[str, Path]], reading: Reading) -> Parts[Pair]:
    source, target = _languages(folder, found, reading)
    partners = {}
    for stem, files in found.items():
        if source in files and target in files:
            partners[files[source]] = files[target]
        elif names.part(Path(f"{stem}.{source}")) == "train":
            raise DataError(f"has {stem}.{' and '.join(files)} but not both {source} and {target}", path=folder)
    parts = own_parts(partners)
    if len(parts.train) > 1 and names.part(parts.train[0]) != "train":
        some = ", ".join(file.name for file in parts.train)
        raise DataError(f"holds several collections ({some}); give two files a,b", path=folder)
    held_out = None if parts.validation is None else _from_files(parts.validation, partners, reading)
    return Parts(_from_files(parts.train, partners, reading), held_out)


def _from_files(files: Sequence[Path], partners: dict[Path, Path], reading: Reading) -> list[Pair]:
    return [pair for file in files for pair in _aligned(file, partners[file], reading.encoding)]


def _aligned(first: Path, second: Path, encoding: str) -> Iterator[Pair]:
    """Line by line from two files, which must end together."""
    number = 0
    for one, other in zip_longest(lines(first, encoding), lines(second, encoding)):
        if one is None or other is None:
            break
        number, source = one
        yield Pair(source, other[1], number)
    else:
        return
    counts = [sum(1 for _ in lines(file, encoding)) for file in (first, second)]
    advice = "aligned files have as many lines as each other"
    raise DataError(f"has {counts[0]:,} lines and {second} has {counts[1]:,}; {advice}", path=first)
