"""How the vocabularies are written down: one word to a line, its properties between bars."""

from __future__ import annotations

from collections.abc import Iterator


def rows(table: str, columns: int) -> Iterator[tuple[str, ...]]:
    """The cells of every line, with empty cells where a line is shorter than `columns`.

    >>> list(rows("bread | pan", 3))
    [('bread', 'pan', '')]
    """
    for line in filter(None, map(str.strip, table.splitlines())):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > columns:
            raise ValueError(f"{line!r} has {len(cells)} cells where {columns} are expected")
        yield (*cells, *[""] * (columns - len(cells)))
