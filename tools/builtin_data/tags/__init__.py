"""Tagged sentences: every word with its universal part-of-speech tag.

Possessives are PRON, the `s` of the genitive and `not` and `to` before a verb are PART, and both kinds of conjunction
are CONJ.
"""

from __future__ import annotations

from random import Random

from builtin_data.tags.patterns import PATTERNS
from clearhead.data.examples import Tagged

COUNT = 6_000
SEED = 6
TAGS = ("ADJ", "ADP", "ADV", "AUX", "CONJ", "DET", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "VERB")


def tagged_sentences() -> tuple[Tagged, ...]:
    """The dataset: distinct sentences, capitalised and punctuated."""
    random = Random(SEED)
    chosen: dict[tuple[str, ...], Tagged] = {}
    while len(chosen) < COUNT:
        sentence = punctuated(random.choice(PATTERNS)(random))
        chosen.setdefault(sentence.tokens, sentence)
    return tuple(chosen.values())


def punctuated(words: list[tuple[str, str]]) -> Tagged:
    """The sentence with a capital, and a full stop if it has no other mark."""
    (first, tag), *rest = words
    ending = [] if words[-1][1] == "PUNCT" else [(".", "PUNCT")]
    tokens, tags = zip((first[0].upper() + first[1:], tag), *rest, *ending, strict=True)
    return Tagged(tokens, tags)
