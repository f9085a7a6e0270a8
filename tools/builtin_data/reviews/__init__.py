"""Labelled texts: reviews of films, restaurants, books and hotels, positive and negative in equal number.

Single words do not decide the label: `not a bad film` is praise, and so is `although the acting was poor, I loved it`.
"""

from __future__ import annotations

from random import Random

from builtin_data.reviews.patterns import PATTERNS, Reviewer, closings
from builtin_data.reviews.words import TOPICS
from clearhead.data.examples import Labelled

COUNT = 6_000
SEED = 5


def reviews() -> tuple[Labelled, ...]:
    """The dataset: distinct reviews, positive and negative in turn."""
    random = Random(SEED)
    chosen: dict[str, Labelled] = {}
    while len(chosen) < COUNT:
        liked = len(chosen) % 2 == 0
        text = review(random, liked)
        chosen.setdefault(text, Labelled(text, "positive" if liked else "negative"))
    return tuple(chosen.values())


def review(random: Random, liked: bool) -> str:
    """One or two sentences by one reviewer."""
    reviewer = Reviewer(random, random.choice(TOPICS), liked)
    opening = random.choice(PATTERNS)
    sentences = [opening(reviewer)]
    if reviewer.chance(0.45):
        sentences.append(random.choice(closings(opening))(reviewer))
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences)
