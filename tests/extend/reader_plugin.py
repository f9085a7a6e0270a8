"""A reader from outside the package: translation pairs as blocks of `key = value` lines.

    [greeting]
    source = good morning
    target = buenos días

`CLEARHEAD_PLUGINS=reader_plugin.py clearhead train translate --data phrases.ini` trains on such a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clearhead.data import Pair
from clearhead.data.files import lines
from clearhead.data.readers import READERS, Certainty, Detected
from clearhead.data.readers.pairs import PairReader
from clearhead.data.source import Source
from clearhead.errors import DataError


@READERS.register("records")
class RecordReader(PairReader):
    """Reads records with a `source` and a `target`; splits and checks are those of all pairs."""

    title = "records of translation pairs"
    suffixes = frozenset({".ini"})

    def can_read(self, source: Source) -> Detected | None:
        if source.is_file and source.path.suffix == ".ini":
            return Detected("records in an .ini file", Certainty.NAMED)
        return None

    def read_file(self, source: Source, file: Path) -> Iterator[Pair]:
        first, begins = "", 0
        for number, line in lines(file, source.options.encoding):
            key, _, value = (part.strip() for part in line.partition("="))
            if key == "source":
                first, begins = value, number
            elif key == "target" and not begins:
                raise DataError("has a target before its source", path=file, line=number)
            elif key == "target":
                yield Pair(first, value, begins)
                begins = 0
