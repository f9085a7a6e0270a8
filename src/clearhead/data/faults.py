"""Rows that deserve a look before a model learns from them, with the places where they are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from clearhead.data.examples import Captioned, Labelled, Pair, Tagged

LONG = 200  # words; about as many as the tokens that training keeps of a sequence by default
RATIO = 9  # of the lengths of two sides; beyond it they are hardly translations of each other
IMBALANCE = 20  # times that one class may have the examples of another
_PLACES = 5  # named for each fault

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# UTF-8 that was once read as Latin-1 or Windows-1252: Ã© for é, â€™ for ’.
_MOJIBAKE = re.compile("[ÃÂ][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€")
_SUSPICIOUS = re.compile(f"{_CONTROL.pattern}|\ufffd|{_MOJIBAKE.pattern}")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that may be wrong, how often, and the first places."""

    what: str
    count: int
    places: tuple[str, ...] = ()


def in_text(text: str) -> Iterator[str]:
    """What is wrong with a text that should be about one sentence long."""
    if not text.strip():
        yield "nothing but white space"
    elif len(text) > LONG and len(text.split()) > LONG:
        yield f"over {LONG} words"
    yield from in_characters(text)


def in_characters(text: str) -> Iterator[str]:
    """What is wrong with the characters of a text, whatever its length."""
    if _SUSPICIOUS.search(text):
        if _CONTROL.search(text):
            yield "control characters"
        if "\ufffd" in text:
            yield "replacement character �"
        if _MOJIBAKE.search(text):
            yield "wrongly decoded letters (Ã© for é)"


def in_pair(pair: Pair) -> Iterator[str]:
    """What is wrong with a pair."""
    yield from _in_texts(pair.source, pair.target)
    shorter, longer = sorted((len(pair.source.strip()), len(pair.target.strip())))
    if shorter and longer > RATIO * shorter:
        yield f"one side over {RATIO} times as long"
    if shorter > 1 and pair.source.strip() == pair.target.strip():
        yield "both sides the same"


def in_labelled(example: Labelled) -> Iterator[str]:
    """What is wrong with a labelled text."""
    yield from in_text(example.text)
    if not example.label:
        yield "no label"


def in_tagged(example: Tagged) -> Iterator[str]:
    """What is wrong with a tagged sentence."""
    yield from in_text(" ".join(example.tokens))
    if not all(example.tags):
        yield "a word without a tag"


def in_captioned(example: Captioned) -> Iterator[str]:
    """What is wrong with the captions of an image."""
    yield from _in_texts(*example.captions)


def collect(found: Iterable[tuple[str, str]]) -> tuple[Fault, ...]:
    """Faults from (what, place), the most frequent first."""
    counts: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for what, place in found:
        counts[what] += 1
        if counts[what] <= _PLACES:
            places.setdefault(what, []).append(place)
    return tuple(Fault(what, count, tuple(places[what])) for what, count in counts.most_common())


def of_examples(
    examples: Iterable[Any], look: Callable[[Any], Iterator[str]], place: Callable[[Any], str]
) -> Iterator[tuple[str, str]]:
    """(what, place) of everything suspicious in examples."""
    for example in examples:
        for what in look(example):
            yield what, place(example)


def of_classes(train: Counter[str], validation: Counter[str]) -> Iterator[Fault]:
    """What is wrong with how often each class appears."""
    if len(train) == 1:
        yield Fault("only one class", 1, tuple(train))
    once = [name for name, count in train.items() if count == 1]
    if once:
        yield Fault("classes seen once", len(once), tuple(once[:_PLACES]))
    unseen = [name for name in validation if name not in train]
    if unseen:
        yield Fault("classes only in the validation part", len(unseen), tuple(unseen[:_PLACES]))
    (most, many), (least, few) = train.most_common()[0], train.most_common()[-1]
    if many > IMBALANCE * few:
        yield Fault(f"one class {many / few:,.0f} times as frequent as another", 1, (most, least))


def _in_texts(*texts: str) -> Iterator[str]:
    """Each fault once, however many of the texts have it."""
    yield from dict.fromkeys(what for text in texts for what in in_text(text))
