"""Predicates and noun phrases parsed from plain English, for the tables of the other files.

>>> predicate("order + a pizza").spanish, predicate("play + football").spanish, predicate("call + the doctor").spanish
('una pizza', 'al fútbol', 'al médico')
"""

from __future__ import annotations

from functools import cache

from builtin_data.pairs.clauses import Predicate, verb_phrase
from builtin_data.pairs.nouns import BY_ENGLISH, NOUNS
from builtin_data.pairs.phrases import DETERMINERS, NounPhrase, noun_phrase
from builtin_data.pairs.verbs import VERBS, Verb, verb

BY_PLURAL = {noun.english_plural: noun for noun in NOUNS}
SINGULARS = {"an": "a", "these": "this", "those": "that"}


@cache
def predicate(text: str) -> Predicate:
    """Parse a verb, and its object after a `+`."""
    name, _, thing = text.strip().partition(" + ")
    return verb_phrase(_verb_taking(name, phrase(thing)), phrase(thing)) if thing else verb_phrase(verb(name))


@cache
def predicates(texts: str) -> tuple[Predicate, ...]:
    """Parse predicates separated by semicolons."""
    return tuple(predicate(text) for text in texts.split(";") if text.strip())


@cache
def phrase(text: str) -> NounPhrase:
    """Parse a noun with or without a determiner."""
    first, _, rest = text.partition(" ")
    determiner = SINGULARS.get(first, first)
    if not rest or determiner not in DETERMINERS:
        determiner, rest = "", text
    singular = BY_ENGLISH.get(rest)
    return noun_phrase(determiner, singular) if singular else noun_phrase(determiner, BY_PLURAL[rest], plural=True)


def _verb_taking(name: str, thing: NounPhrase) -> Verb:
    """The verb that takes such an object: `play` is `jugar` with a game, `tocar` with an instrument."""
    return next(word for word in VERBS if word.english == name and thing.kinds & set(word.objects.split()))
