"""How each kind of example is looked at by `check`: what counts as a text, a duplicate, an answer, a class."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clearhead.config import DataKind, TokenizerConfig
from clearhead.data import faults


@dataclass(frozen=True, slots=True)
class View:
    """One kind of example; `key` is what `splits.identity` makes of its source."""

    task: str
    unit: str
    texts: Mapping[str, Callable[[Any], Iterable[str]]]  # side -> its texts
    row: Callable[[bytes, Any], Hashable]  # (key, example) -> what makes it a duplicate of another
    answer: Callable[[Any], Hashable] | None  # what a model is to say; none where many answers are right
    classes: Callable[[Any], Iterable[str]] | None
    look: Callable[[Any], Iterator[str]]  # what is wrong with an example
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)  # that its task trains by default


VIEWS: dict[DataKind, View] = {
    "pairs": View(
        task="translate",
        unit="pairs",
        texts={"source": lambda pair: (pair.source,), "target": lambda pair: (pair.target,)},
        row=lambda _, pair: (pair.source, pair.target),
        answer=lambda pair: pair.target,
        classes=None,
        look=faults.in_pair,
    ),
    "labelled": View(
        task="classify",
        unit="texts",
        texts={"text": lambda example: (example.text,)},
        row=lambda _, example: (example.text, example.label),
        answer=lambda example: example.label,
        classes=lambda example: (example.label,),
        look=faults.in_labelled,
    ),
    "tagged": View(
        task="tag",
        unit="sentences",
        texts={"sentence": lambda example: (" ".join(example.tokens),)},
        row=lambda _, example: (example.tokens, example.tags),
        answer=lambda example: example.tags,
        classes=lambda example: example.tags,
        look=faults.in_tagged,
        tokenizer=TokenizerConfig(kind="word"),
    ),
    "images": View(
        task="vision",
        unit="images",
        texts={},
        row=lambda key, picture: (key, picture.label),
        answer=lambda picture: picture.label,
        classes=lambda picture: (picture.label,),
        look=lambda _: iter(()),
    ),
    "captions": View(
        task="caption",
        unit="images",
        texts={"caption": lambda example: example.captions},
        row=lambda key, _: key,
        answer=None,
        classes=None,
        look=faults.in_captioned,
        tokenizer=TokenizerConfig(kind="word"),
    ),
}
