"""Somebody with an opinion: the same questions get opposite words from those who liked it and those who did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from builtin_data.reviews.words import BLAME, PRAISE, STRONGER, UTMOST, Part, Topic


@dataclass(frozen=True, slots=True)
class Voice:
    """A reviewer; `agreeing` words share the reviewer's opinion, the others oppose it."""

    random: Random
    topic: Topic
    liked: bool

    def pick(self, items: Sequence[str]) -> str:
        """One of the items."""
        return items[int(self.random.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def either(self, positive: Sequence[str], negative: Sequence[str]) -> str:
        """One of the phrases for the reviewer's opinion."""
        return self.pick(positive if self.liked else negative)

    def word(self, agreeing: bool = True) -> str:
        """An adjective for the whole."""
        return self.pick(self.topic.good if self.liked == agreeing else self.topic.bad)

    def common(self, agreeing: bool = True) -> str:
        """An adjective for anything."""
        return self.pick(PRAISE if self.liked == agreeing else BLAME)

    def stronger(self, word: str) -> str:
        """The word with another in front of it, where it bears one."""
        return word if word in UTMOST else f"{self.pick(STRONGER)} {word}"

    def parts(self, count: int) -> list[Part]:
        """Different parts of the topic."""
        return self.random.sample(self.topic.parts, count)

    def of(self, part: Part, agreeing: bool = True) -> str:
        """A part and how it was."""
        word = self.quality(part, agreeing)
        return f"{part.name} {self.stronger(word) if self.chance(0.4) else word}"

    def quality(self, part: Part, agreeing: bool = True) -> str:
        """An adjective for a part."""
        return self.pick(part.good if self.liked == agreeing else part.bad)

    def deed(self) -> str:
        """What the reviewer did."""
        return self.pick(self.topic.good_deeds if self.liked else self.topic.bad_deeds)


def article(words: str) -> str:
    """The words with `a` or `an`.

    >>> article("awful film"), article("unique film")
    ('an awful film', 'a unique film')
    """
    return f"{'an' if words[0] in 'aeiou' and not words.startswith('uni') else 'a'} {words}"
