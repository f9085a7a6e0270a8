"""The datasets that come with the package: one for every task, written by us, the same on every machine.

examples("pairs")     50,000 English sentences and their Spanish
examples("text")      800 texts: stories, letters, scenes, verses
examples("labelled")  6,000 reviews, positive and negative
examples("tagged")    6,000 sentences with their parts of speech
examples("images")    6,000 pictures of ten shapes
examples("captions")  4,000 pictures with three captions each
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, overload

from clearhead.config import DataKind
from clearhead.data.builtin.captions import captioned
from clearhead.data.builtin.images import pictures
from clearhead.data.builtin.pairs import pairs
from clearhead.data.builtin.prose import texts
from clearhead.data.builtin.reviews import reviews
from clearhead.data.builtin.tags import tagged_sentences
from clearhead.data.examples import Captioned, Labelled, Pair, Picture, Tagged
from clearhead.errors import ConfigError, nearest

MAKERS: dict[DataKind, Callable[[], tuple[Any, ...]]] = {
    "pairs": pairs,
    "text": texts,
    "labelled": reviews,
    "tagged": tagged_sentences,
    "images": pictures,
    "captions": captioned,
}


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
def examples(kind: DataKind) -> tuple[Any, ...]: ...


def examples(kind: DataKind) -> tuple[Any, ...]:
    """All examples of a kind, always the same ones in the same order; they are made once."""
    if kind not in MAKERS:
        raise ConfigError(f"unknown kind {kind}; {nearest(kind, MAKERS)}")
    return _made(kind)


@cache
def _made(kind: DataKind) -> tuple[Any, ...]:
    return MAKERS[kind]()
