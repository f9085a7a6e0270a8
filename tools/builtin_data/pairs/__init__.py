"""Pairs: English sentences and their Spanish, written by a grammar.

Every English sentence has one translation, so that an exact match is a fair score. What English leaves open is fixed:
`you` is `tú` and `you all` is `ustedes`; a gender that English hides is masculine; the Spanish is that of Mexico.
Sentences begin with a small letter and end without a full stop; only `I`, names, days, nations and languages have
capitals in English, and only names in Spanish.
"""

from __future__ import annotations

from builtin_data.pairs.sentences import sentences
from clearhead.data.examples import Pair

COUNT = 50_000
LONGEST = 14  # words of English
SEED = 1

# The sentences of the lectures, and their nearest relatives.
LECTURES = (
    ("we are eating bread", "estamos comiendo pan"),
    ("I'm not hungry yet", "todavía no tengo hambre"),
    ("I am not hungry yet", "todavía no tengo hambre"),
    ("I'm not thirsty yet", "todavía no tengo sed"),
    ("I'm not cold yet", "todavía no tengo frío"),
    ("I'm not hot yet", "todavía no tengo calor"),
    ("I'm not sleepy yet", "todavía no tengo sueño"),
    ("I'm not tired yet", "todavía no estoy cansado"),
)


def pairs() -> tuple[Pair, ...]:
    """The dataset: the lectures' sentences first, then distinct sentences of the grammar."""
    chosen = dict(LECTURES)
    for sentence in sentences(SEED):
        if not 2 <= len(sentence.english.split()) <= LONGEST:
            continue
        chosen.setdefault(sentence.english, sentence.spanish)
        if len(chosen) == COUNT:
            break
    return tuple(Pair(source, target) for source, target in chosen.items())
