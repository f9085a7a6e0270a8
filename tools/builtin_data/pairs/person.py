"""Who a verb agrees with."""

from __future__ import annotations

from enum import IntEnum


class Person(IntEnum):
    """The five rows of a Spanish verb table; `ustedes` takes the row of THEY."""

    I = 0  # noqa: E741
    YOU = 1
    HE = 2
    WE = 3
    THEY = 4
