"""Short ways to build phrases of the built-in grammar, for its tests."""

from __future__ import annotations

from builtin_data.pairs.adjectives import adjective
from builtin_data.pairs.circumstances import place
from builtin_data.pairs.clauses import Predicate
from builtin_data.pairs.nouns import noun
from builtin_data.pairs.phrases import NounPhrase, noun_phrase
from builtin_data.pairs.shorthand import predicate
from builtin_data.pairs.subjects import Subject, named, subject
from builtin_data.pairs.transfers import GIVERS, to_person, to_pronoun


def a(text: str, quality: str = "", plural: bool = False) -> NounPhrase:
    """A noun phrase such as `the car` with an adjective."""
    determiner, _, name = text.partition(" ")
    return noun_phrase(determiner, noun(name), plural, adjective(quality) if quality else None)


def the(text: str, quality: str = "", plural: bool = False) -> Subject:
    return subject(a(text, quality, plural))


def give(english: str) -> Predicate:
    return (
        to_pronoun(GIVERS[0], a("a watch"), "me", "me")
        if english == "me"
        else to_person(GIVERS[0], a("a book"), a(english), person_first=False)
    )


ANA, INES, LUIS = named("Ana", "Ana", "f"), named("Ines", "Inés", "f"), named("Luis", "Luis", "m")
BREAD = predicate("eat + bread")
AT_HOME = place("at home")
