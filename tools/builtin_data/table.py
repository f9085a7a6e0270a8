"""The format of the vocabularies: one entry to a line, its fields separated by bars."""

from __future__ import annotations

from collections.abc import Iterator


def rows(table: str, columns: int) -> Iterator[tuple[str, ...]]:
    """The cells of every line, padded with empty cells to `columns`.

    >>> list(rows("bread | pan", 3))
    [('bread', 'pan', '')]
    """
    for line in filter(None, map(str.strip, table.splitlines())):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > columns:
            raise ValueError(f"{line!r} has {len(cells)} cells where {columns} are expected")
        yield (*cells, *[""] * (columns - len(cells)))
