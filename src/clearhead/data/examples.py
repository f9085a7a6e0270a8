"""What a dataset is made of: one small frozen record for each kind of example, and how a dataset is split.

`line` is where the example begins in its file (1 is the first line, 0 means that it has no file), so that errors and
reports can name the place.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (height, width, channels)

MOST_HELD_OUT = 1000  # examples, where nobody said how many


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
    """A tokenised sentence and one tag for each token."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """An image, as pixels or as a file that is opened when needed, and its class."""

    image: Pixels | Path
    label: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Captioned:
    """An image and one or more sentences that describe it."""

    image: Pixels | Path
    captions: tuple[str, ...]
    line: int = 0


Example = TypeVar("Example", str, Pair, Labelled, Tagged, Picture, Captioned)
Member = TypeVar("Member")
Collection = TypeVar("Collection", covariant=True)


class Parts(NamedTuple, Generic[Collection]):
    """The training part and the validation part; None where the data has no validation part."""

    train: Collection
    validation: Collection | None


@dataclass(frozen=True, slots=True)
class Dataset(Generic[Example]):
    """Training and validation examples; for running text both sides yield blocks of text."""

    kind: str
    train: Sequence[Example] | Iterable[Example]
    validation: Sequence[Example] | Iterable[Example]
    origin: str  # the path it came from, or "builtin"
    columns: str = ""  # which columns were read, and which were not


AnyDataset = Dataset[Any]


def held_out_share(share: float | None, amount: int, most: int) -> float:
    """The share to hold out: as given, else 5 % of the `amount`, but about `most` in all."""
    return share if share is not None else min(0.05, most / max(amount, 1))


def split_by_hash(
    examples: Sequence[Member], share: float | None, key: Callable[[Member], bytes]
) -> tuple[list[Member], list[Member]]:
    """Hold out about `share` of the keys; with two different keys or more, neither side is empty.

    The hash depends on nothing but the key, so an example is on the same side on every machine and after the file has
    grown, and duplicates are never on both sides.
    """
    share = held_out_share(share, len(examples), MOST_HELD_OUT)
    positions = [_hash_position(key(example)) for example in examples]
    border = share
    if share > 0 and positions:
        border = min(max(share, np.nextafter(min(positions), 1)), max(positions))
    train = [example for example, position in zip(examples, positions, strict=True) if position >= border]
    return train, [example for example, position in zip(examples, positions, strict=True) if position < border]


def with_known_classes(
    train: list[Member],
    held_out: list[Member],
    key: Callable[[Member], bytes],
    classes: Callable[[Member], Sequence[str]],
) -> tuple[list[Member], list[Member]]:
    """The two sides, with held-out examples of a class that training would never see moved to the training side.

    If nothing would be left to validate with, they stay.
    """
    known = {name for example in train for name in classes(example)}
    moved = {key(example) for example in held_out if not known.issuperset(classes(example))}
    rest = [example for example in held_out if key(example) not in moved] if moved else []
    if not rest:
        return train, held_out
    return train + [example for example in held_out if key(example) in moved], rest


def folded(text: str) -> bytes:
    """Text as a key: composition, case and white space make no difference.

    >>> folded(" Cafe\\u0301  noir") == folded("café NOIR")
    True
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.split()).encode("utf-8", "surrogatepass")


def _hash_position(key: bytes) -> float:
    """A number between 0 and 1 from 53 bits of the key's hash, as many as a float holds."""
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
