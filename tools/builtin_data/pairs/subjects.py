"""Subjects: pronouns, names and noun phrases.

Spanish drops `I`, `you` and `we`; it keeps `he`, `she`, `they` and `you all`, whose verb forms are ambiguous. Unmarked
gender is masculine: I, you, we, they, everyone. `you` is always `tú` and `your` always `tu`, so `you all` has no
possessive.
"""

from __future__ import annotations

from dataclasses import dataclass

from builtin_data.pairs.nouns import Gender
from builtin_data.pairs.phrases import NounPhrase, conjunction
from builtin_data.pairs.spanish_verbs import Person


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject in both languages, with its agreement features."""

    english: str
    spanish: str  # empty if dropped
    english_person: Person
    spanish_person: Person
    gender: Gender
    stressed: str  # after a preposition: `a mí`, `a mi hermano`
    possessive: str  # its English possessive determiner
    kinds: frozenset[str] = frozenset({"human", "adult"})

    @property
    def plural(self) -> bool:
        """Whether adjectives take the Spanish plural."""
        return self.spanish_person in (Person.WE, Person.THEY)


I = Subject("I", "", Person.I, Person.I, "m", "mí", "my")  # noqa: E741
YOU = Subject("you", "", Person.YOU, Person.YOU, "m", "ti", "your")
HE = Subject("he", "él", Person.HE, Person.HE, "m", "él", "his")
SHE = Subject("she", "ella", Person.HE, Person.HE, "f", "ella", "her")
WE = Subject("we", "", Person.WE, Person.WE, "m", "nosotros", "our")
THEY = Subject("they", "ellos", Person.THEY, Person.THEY, "m", "ellos", "their")
YOU_ALL = Subject("you all", "ustedes", Person.YOU, Person.THEY, "m", "ustedes", "the")
PRONOUNS = (I, YOU, HE, SHE, WE, THEY, YOU_ALL)

EVERYONE = Subject("everyone", "todos", Person.HE, Person.THEY, "m", "todos", "the")
NOBODY = Subject("nobody", "nadie", Person.HE, Person.HE, "m", "nadie", "the")
SOMEBODY = Subject("somebody", "alguien", Person.HE, Person.HE, "m", "alguien", "the")
WHO = Subject("who", "quién", Person.HE, Person.HE, "m", "quién", "the")

NAMES = (
    ("Ana", "Ana", "f"), ("Carmen", "Carmen", "f"), ("Elena", "Elena", "f"), ("Ines", "Inés", "f"),
    ("Isabel", "Isabel", "f"), ("Lucia", "Lucía", "f"), ("Maria", "María", "f"), ("Rosa", "Rosa", "f"),
    ("Carlos", "Carlos", "m"), ("Diego", "Diego", "m"), ("Jorge", "Jorge", "m"), ("Luis", "Luis", "m"),
    ("Manuel", "Manuel", "m"), ("Miguel", "Miguel", "m"), ("Pablo", "Pablo", "m"), ("Pedro", "Pedro", "m"),
)  # fmt: skip

# Object pronouns: English, Spanish direct, Spanish indirect, the subject that they refer to.
OBJECT_PRONOUNS = (
    ("me", "me", "me", I),
    ("you", "te", "te", YOU),
    ("him", "lo", "le", HE),
    ("her", "la", "le", SHE),
    ("us", "nos", "nos", WE),
    ("them", "los", "les", THEY),
)

REFLEXIVES = ("me", "te", "se", "nos", "se")
DATIVES = ("me", "te", "le", "nos", "les")


def subject(phrase: NounPhrase) -> Subject:
    """A noun phrase as a subject."""
    person = Person.THEY if phrase.plural else Person.HE
    possessive = "their" if phrase.plural else "her" if phrase.gender == "f" else "his"
    return Subject(
        phrase.english, phrase.spanish, person, person, phrase.gender, phrase.spanish, possessive, phrase.kinds
    )


def named(english: str, spanish: str, gender: str) -> Subject:
    """A named person as a subject."""
    return subject(NounPhrase(english, spanish, "f" if gender == "f" else "m", False, frozenset({"human", "adult"})))


PEOPLE_WITH_NAMES = tuple(named(*name) for name in NAMES)


def together(first: Subject, second: Subject) -> Subject:
    """Two subjects joined by `and`; `my mother and I` agrees as `we`."""
    link = conjunction("y", second.spanish)
    mine = second is I
    gender: Gender = "f" if not mine and first.gender == second.gender == "f" else "m"
    spanish = f"{first.spanish} y yo" if mine else f"{first.spanish} {link} {second.spanish}"
    person = Person.WE if mine else Person.THEY
    english = f"{first.english} and {second.english}"
    stressed = f"{first.stressed} y a {second.stressed}" if mine else spanish
    return Subject(english, spanish, person, person, gender, stressed, "our" if mine else "their")
