"""Training and validation parts: the ones a folder has of its own, else a share chosen by a hash of the source.

The hash depends on nothing but the example's source, so an example is on the same side on every machine and after
the file has grown, and duplicates never straddle the two sides.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from clearhead.data import names
from clearhead.data.examples import Captioned, Labelled, Pair, Picture, Pixels, Tagged
from clearhead.data.files import opened

_PIECE = 1 << 16  # bytes of a file hashed at a time

Member = TypeVar("Member")


class Parts(NamedTuple, Generic[Member]):
    """What to learn from, and what is held out; None where the data has no validation part of its own."""

    train: Sequence[Member]
    validation: Sequence[Member] | None


def own_parts(paths: Iterable[Path]) -> Parts[Path]:
    """Sort files or folders by the part their names speak of; without a train part all of them are to learn from.

    >>> own_parts([Path("dev.tsv"), Path("test.tsv"), Path("train.tsv")])
    Parts(train=[PosixPath('train.tsv')], validation=[PosixPath('dev.tsv')])
    """
    paths = list(paths)
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(names.part(path), []).append(path)
    if "train" not in groups:
        return Parts(paths, None)
    return Parts(groups["train"], groups.get("validation") or groups.get("test"))


def split(
    examples: Sequence[Member], share: float, key: Callable[[Member], bytes]
) -> tuple[list[Member], list[Member]]:
    """Hold out about `share` of the keys; train always has one, and where there are two, so has the other side."""
    places = [_place(key(example)) for example in examples]
    border = share
    if share > 0 and places:
        border = min(max(share, np.nextafter(min(places), 1)), max(places))
    train = [example for example, place in zip(examples, places, strict=True) if place >= border]
    return train, [example for example, place in zip(examples, places, strict=True) if place < border]


def identity(example: Any) -> bytes:
    """What makes two examples the same to the model's input: the folded text, or the bytes of the image."""
    match example:
        case Pair():
            return folded(example.source)
        case Labelled():
            return folded(example.text)
        case Tagged():
            return folded(" ".join(example.tokens))
        case Picture() | Captioned():
            return _image_bytes(example.image)
    raise TypeError(f"{type(example).__name__} is not an example")


def folded(text: str) -> bytes:
    """Text without the differences that make no other sentence of it: composition, capitals and white space.

    >>> folded(" Cafe\\u0301  noir") == folded("café NOIR")
    True
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.split()).encode("utf-8", "surrogatepass")


def _place(key: bytes) -> float:
    """Where between 0 and 1 a key falls: 53 bits of its hash, as many as a float holds."""
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def _image_bytes(image: Pixels | Path) -> bytes:
    """The content of an image as a digest, so that no two large images are held at once."""
    if isinstance(image, Path):
        with opened(image) as stream:
            digest = hashlib.blake2b()
            while piece := stream.read(_PIECE):
                digest.update(piece)
            return digest.digest()
    header = repr((image.shape, str(image.dtype))).encode()
    return hashlib.blake2b(header + np.ascontiguousarray(image).tobytes()).digest()
