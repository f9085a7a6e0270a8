"""Numbers about a dataset: lengths, duplicates, contradictions, leaks, and how much of it a vocabulary misses."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from clearhead.config import TokenizerConfig

Member = TypeVar("Member")

SAMPLE = 20_000  # examples from which a vocabulary is learned, and on which it is tried


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long things are: the shortest, the middle one, one longer than 95 % of the others, the longest."""

    what: str
    shortest: int
    median: int
    most: int
    longest: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """How much of the validation part a vocabulary does not know."""

    tokenizer: str
    size: int  # tokens in the vocabulary
    share: float  # of the validation part's tokens


def lengths(what: str, values: Iterable[int]) -> Lengths:
    """Summarise lengths; of none at all, zeros."""
    array = np.fromiter(values, dtype=np.int64)
    if not array.size:
        return Lengths(what, 0, 0, 0, 0)
    median, most = np.percentile(array, (50, 95), method="nearest")
    return Lengths(what, int(array.min()), int(median), int(most), int(array.max()))


def text_lengths(what: str, texts: Sequence[str]) -> tuple[Lengths, Lengths]:
    """Lengths in words and in characters."""
    words = lengths(f"{what} words", (len(text.split()) for text in texts))
    return words, lengths(f"{what} characters", map(len, texts))


def duplicates(rows: Sequence[Hashable]) -> int:
    """How many rows are there already."""
    return len(rows) - len(set(rows))


def contradictions(rows: Iterable[tuple[Hashable, Hashable]]) -> int:
    """How many sources appear with several different answers."""
    answers: dict[Hashable, Hashable] = {}
    several = set()
    for source, answer in rows:
        if answers.setdefault(source, answer) != answer:
            several.add(source)
    return len(several)


def leaked(train: Iterable[bytes], validation: Iterable[bytes]) -> int:
    """How many validation examples have a source that is also in the training part."""
    seen = set(train)
    return sum(key in seen for key in validation)


def spread(members: Sequence[Member], count: int = SAMPLE) -> Sequence[Member]:
    """At most `count` members from all over a sequence, which may be sorted by length."""
    return members[:: max(1, -(-len(members) // count))]


def unknown(config: TokenizerConfig, train: Sequence[str], validation: Sequence[str]) -> Unknown:
    """Learn a vocabulary as training would, and try it on texts that it has not seen."""
    from clearhead.text import Tokenizer

    tokenizer = Tokenizer.train(config.kind, train, size=config.size, lowercase=config.lowercase)
    rows = tokenizer.encode_batch(validation)
    share = sum(row.count(tokenizer.unknown) for row in rows) / max(1, sum(map(len, rows)))
    return Unknown(config.kind, len(tokenizer), share)
