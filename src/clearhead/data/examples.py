"""What a dataset is made of: one small frozen record for each kind of example.

`line` is where the example begins in its file (1 is the first line, 0 means that it has no file), so that
whoever finds a fault later can name the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DataKind

Pixels = NDArray[np.uint8]  # (height, width, channels)


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation."""

    source: str
    target: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and its class."""

    text: str
    label: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence already cut into words, and one tag for each word."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """An image, as pixels or as a file to be opened when needed, and its class."""

    image: Pixels | Path
    label: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Captioned:
    """An image and one or more sentences about it."""

    image: Pixels | Path
    captions: tuple[str, ...]
    line: int = 0


Example = TypeVar("Example", str, Pair, Labelled, Tagged, Picture, Captioned)


@dataclass(frozen=True, slots=True)
class Dataset(Generic[Example]):
    """Examples to learn from and examples held out; for plain text both sides yield blocks of running text."""

    kind: DataKind
    train: Sequence[Example] | Iterable[Example]
    validation: Sequence[Example] | Iterable[Example]
    origin: str  # the path it came from, or "builtin"


AnyDataset = Dataset[Any]
