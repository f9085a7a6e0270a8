"""The datasets that come with the package: one for every kind of data, the same on every machine.

examples("pairs")     50,000 English sentences and their Spanish translations
examples("text")      800 texts: stories, letters, scenes, verses
examples("labelled")  6,000 reviews, positive and negative
examples("tagged")    6,000 sentences with their parts of speech
examples("images")    6,000 pictures of ten shapes
examples("captions")  4,000 pictures with three captions each

The texts are `.gz` files in this folder, written by `tools/make_builtin_data.py`; `pictures.py` draws the images.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Literal, overload

from clearhead.data.builtin.pictures import captioned, images
from clearhead.data.examples import Captioned, Labelled, Pair, Picture, Tagged
from clearhead.errors import ConfigError, nearest


def _pairs() -> tuple[Pair, ...]:
    rows = (line.split("\t") for line in _content("pairs.tsv.gz").splitlines())
    return tuple(Pair(source, target) for source, target in rows)


def _text() -> tuple[str, ...]:
    return tuple(_content("prose.txt.gz").split("\n\n\n"))


def _labelled() -> tuple[Labelled, ...]:
    rows = (line.split("\t") for line in _content("reviews.tsv.gz").splitlines())
    return tuple(Labelled(text, label) for label, text in rows)


def _tagged() -> tuple[Tagged, ...]:
    sentences = _content("tags.conll.gz").removesuffix("\n\n").split("\n\n")
    columns = (zip(*(row.split("\t") for row in sentence.split("\n")), strict=True) for sentence in sentences)
    return tuple(Tagged(tokens, tags) for tokens, tags in columns)


_READERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "pairs": _pairs,
    "text": _text,
    "labelled": _labelled,
    "tagged": _tagged,
    "images": images,
    "captions": captioned,
}
KINDS = tuple(_READERS)


@overload
def examples(kind: Literal["pairs"]) -> tuple[Pair, ...]: ...
@overload
def examples(kind: Literal["text"]) -> tuple[str, ...]: ...
@overload
def examples(kind: Literal["labelled"]) -> tuple[Labelled, ...]: ...
@overload
def examples(kind: Literal["tagged"]) -> tuple[Tagged, ...]: ...
@overload
def examples(kind: Literal["images"]) -> tuple[Picture, ...]: ...
@overload
def examples(kind: Literal["captions"]) -> tuple[Captioned, ...]: ...
@overload
def examples(kind: str) -> tuple[Any, ...]: ...


def examples(kind: str) -> tuple[Any, ...]:
    """All examples of a kind, always the same ones in the same order; they are read or drawn once."""
    if kind not in _READERS:
        raise ConfigError(f"there is no built-in data of the kind {kind}; {nearest(kind, _READERS)}")
    return _read_once(kind)


@cache
def _read_once(kind: str) -> tuple[Any, ...]:
    return _READERS[kind]()


def _content(name: str) -> str:
    return gzip.decompress(files(__name__).joinpath(name).read_bytes()).decode()
