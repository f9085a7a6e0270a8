"""Translation pairs: two columns of a table, or two files whose lines belong together.

A folder holds `train.en` and `train.de`, perhaps `val.en` and `val.de` beside them, or tables such as `train.tsv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from clearhead.data import lint
from clearhead.data.examples import Pair, Parts, folded
from clearhead.data.files import TABLES, bare_name, files_in, lines, part_name, sort_into_parts
from clearhead.data.readers import READERS, Certainty, Detected, Reader, find_parts
from clearhead.data.source import ReadOptions, Source
from clearhead.data.tables import SOURCE, TARGET, Table, are_numbers, is_language, printable
from clearhead.errors import ConfigError, DataError, nearest

Side = TypeVar("Side", int, str)  # the index of a column, or a language

_ADVICE = "choose with --source and --target (data.source=… data.target=…)"


class PairReader(Reader):
    """The splits and checks of pairs, wherever they come from."""

    example_kind, title, unit, task = "pairs", "translation pairs", "pairs", "translate"

    def identity(self, example: Pair) -> bytes:
        return folded(example.source)

    def texts(self, example: Pair) -> Mapping[str, Sequence[str]]:
        return {"source": (example.source,), "target": (example.target,)}

    def row(self, key: bytes, example: Pair) -> tuple[str, str]:
        return example.source, example.target

    def answer(self, example: Pair) -> str:
        return example.target

    def problems(self, example: Pair) -> Iterator[str]:
        return lint.pair_problems(example.source, example.target)


@READERS.register("pairs")
class PairFileReader(PairReader):
    """Reads translation pairs from tables and aligned files."""

    suffixes = TABLES
    reads_aligned_files = True

    def can_read(self, source: Source) -> Detected | None:
        if source.is_aligned:
            return Detected("two files whose lines belong together", Certainty.CERTAIN)
        if source.is_folder:
            found = aligned_files(source.path, source.options)
            languages = sorted({language for files in found.values() for language in files})
            reason = f"files named after the languages {', '.join(languages)}"
            return Detected(reason, Certainty.CERTAIN) if found else None
        if not source.is_table():
            return None
        table = pair_table(source, source.path)
        if indices := named_sides(table):
            named = "columns named" if table.header or table.format in ("jsonl", "json") else "a file named after"
            reason = f"{named} {', '.join(printable(table.names[index]) for index in indices)}"
            return Detected(reason, Certainty.NAMED)
        if has_attribution(table):
            return Detected("two columns of sentences and one that says where they are from", Certainty.NAMED)
        if table.width < 2:
            raise DataError(
                "has one column; pairs and labelled texts need two, plain text a .txt file", path=table.path
            )
        several = "two text columns that both vary" if table.width == 2 else "several text columns that vary"
        return Detected(several, Certainty.GUESS)

    def read(self, source: Source) -> Parts[list[Pair]]:
        if source.is_aligned:
            first, second = source.paths
            return Parts(list(_aligned(first, second, source.options.encoding)), None)
        if source.is_folder and (found := aligned_files(source.path, source.options)):
            return _read_aligned_folder(source, found)
        return super().read(source)

    def read_file(self, source: Source, file: Path) -> Iterator[Pair]:
        table = pair_table(source, file)
        for line, (first, second) in table.rows(*side_columns(table, source.options)):
            yield Pair(first, second, line)

    def columns(self, source: Source) -> str:
        if source.is_aligned:
            first_file, second_file = source.paths
            return f"the source is {first_file.name}, the target {second_file.name}"
        if source.is_folder and (found := aligned_files(source.path, source.options)):
            languages = _languages(source, found)
            return f"the source is {languages[0]}, the target {languages[1]}; data.source=… data.target=… choose others"
        table = pair_table(source, find_parts(source.path).train[0])
        first, second = side_columns(table, source.options)
        sides = f"the source is column {table.name(first)}, the target column {table.name(second)}"
        return sides + table.unused(first, second)

    def languages(self, source: Source) -> tuple[str, str] | None:
        if source.is_builtin or source.is_aligned:
            return None
        if source.is_folder and (found := aligned_files(source.path, source.options)):
            return _languages(source, found)
        table = pair_table(source, find_parts(source.path).train[0])
        first, second = side_columns(table, source.options)
        return (table.names[first], table.names[second]) if table.names else None


def aligned_files(folder: Path, options: ReadOptions) -> dict[str, dict[str, Path]]:
    """Files named `stem.language`: stem -> language -> file; empty unless some stem has two languages."""
    given = {name.casefold() for name in (options.source, options.target) if name}
    found: dict[str, dict[str, Path]] = {}
    for entry in files_in(folder):
        stem, dot, language = bare_name(entry).rpartition(".")
        if dot and (is_language(language) or language in SOURCE | TARGET | given):
            found.setdefault(stem, {})[language] = entry
    return found if any(len(files) > 1 for files in found.values()) else {}


def pair_table(source: Source, file: Path) -> Table:
    """A table of pairs; a file without a header may be named after its languages: `en-es.tsv`."""
    table = source.table(file)
    by_name = re.fullmatch(r"([a-z]{2})[-_]([a-z]{2})", bare_name(file).partition(".")[0])
    languages = by_name.groups() if by_name and all(map(is_language, by_name.groups())) else ()
    if table.names or not languages or len(_likely_columns(table)) != 2:
        return table
    return replace(table, names=(*languages, *("attribution",) * (table.width - 2)))


def named_sides(table: Table) -> list[int]:
    """The columns called source and target, else all that are named after languages, if there are two or more."""
    source, target = table.find(SOURCE), table.find(TARGET)
    if source is not None and target is not None:
        return [source, target]
    languages = [index for index, name in enumerate(table.names) if is_language(name)]
    return languages if len(languages) > 1 else []


def has_attribution(table: Table) -> bool:
    """Whether the third of three columns only says where each pair is from, as in Tatoeba's files."""
    return table.width == 3 and all("CC-BY" in value or "tatoeba" in value.lower() for value in table.values(2))


def side_columns(table: Table, options: ReadOptions) -> tuple[int, int]:
    """The indices of the source and the target column."""
    source, target = (table.column(name) if name else None for name in (options.source, options.target))
    problem = f"has the columns {table.listed_names()}" if table.width > 1 else "has one column where a pair needs two"
    return _two_sides(_likely_columns(table), source, target, problem, table.path)


def _likely_columns(table: Table) -> list[int]:
    """The columns of the two sides: by name, or those that are not numbers, if these are two."""
    if named := named_sides(table):
        return named
    if has_attribution(table):
        return [0, 1]
    texts = [index for index in range(table.width) if table.width == 2 or not are_numbers(table.values(index))]
    return texts if len(texts) == 2 else []


def _two_sides(
    likely: Sequence[Side], source: Side | None, target: Side | None, problem: str, path: Path
) -> tuple[Side, Side]:
    """Complete the sides that the user chose from the likely ones; if that is ambiguous, raise the problem."""
    if source is not None and source == target:
        raise ConfigError(f"{path}: source and target are the same")
    if source is not None and target is not None:
        return source, target
    left = [side for side in likely if side not in (source, target)]
    if len(likely) != 2 or len(left) != (source is None) + (target is None):
        raise DataError(f"{problem}; {_ADVICE}", path=path)
    source = left.pop(0) if source is None else source
    return source, left.pop(0) if target is None else target


def _languages(source: Source, found: Mapping[str, Mapping[str, Path]]) -> tuple[str, str]:
    """The two languages of a folder that are read."""
    available = sorted({language for files in found.values() for language in files})
    problem = f"holds {', '.join(available)}"
    given = [name and name.casefold() for name in (source.options.source, source.options.target)]
    for language in given:
        if language and language not in available:
            raise DataError(f"{problem}, not {language}; {nearest(language, available)}", path=source.path)
    likely = sorted(available, key=lambda name: name in TARGET)
    return _two_sides(likely, given[0], given[1], problem, source.path)


def _read_aligned_folder(source: Source, found: Mapping[str, Mapping[str, Path]]) -> Parts[list[Pair]]:
    first, second = _languages(source, found)
    partners = {}
    for stem, files in found.items():
        if first in files and second in files:
            partners[files[first]] = files[second]
        elif part_name(Path(f"{stem}.{first}")) == "train":
            message = f"has {stem}.{' and '.join(files)} but not both {first} and {second}"
            raise DataError(message, path=source.path)
    parts = sort_into_parts(partners)
    if len(parts.train) > 1 and part_name(parts.train[0]) != "train":
        some = ", ".join(file.name for file in parts.train)
        raise DataError(f"holds several collections ({some}); give two files a,b", path=source.path)

    def read(files: Sequence[Path]) -> list[Pair]:
        return [pair for file in files for pair in _aligned(file, partners[file], source.options.encoding)]

    return Parts(read(parts.train), None if parts.validation is None else read(parts.validation))


def _aligned(first: Path, second: Path, encoding: str) -> Iterator[Pair]:
    """Pairs of lines from two files, which must have the same number of lines."""
    for one, other in zip_longest(lines(first, encoding), lines(second, encoding)):
        if one is None or other is None:
            break
        yield Pair(one[1], other[1], one[0])
    else:
        return
    counts = [sum(1 for _ in lines(file, encoding)) for file in (first, second)]
    advice = "aligned files need the same number of lines"
    raise DataError(f"has {counts[0]:,} lines and {second} has {counts[1]:,}; {advice}", path=first)
