"""Saying that one thing is another, or more, or the most: `this is my car`, `it is bigger`, `the biggest`."""

from __future__ import annotations

from random import Random

from builtin_data.pairs.adjectives import Adjective, adjective, fitting
from builtin_data.pairs.choices import POSSESSIVES, chance, choose_owner, choose_plain_subject, pick
from builtin_data.pairs.clauses import Clause, Form, Predicate
from builtin_data.pairs.nouns import noun, of_kinds
from builtin_data.pairs.person import Person
from builtin_data.pairs.phrases import NounPhrase, Phrase, after, noun_phrase, owned, words
from builtin_data.pairs.states import SER, UNGRADED
from builtin_data.pairs.subjects import PEOPLE_WITH_NAMES, Subject, subject

ONE_WORD = {
    "tall": "taller", "strong": "stronger", "young": "younger", "thin": "thinner", "rich": "richer", "nice": "nicer",
    "funny": "funnier", "kind": "kinder", "lazy": "lazier", "brave": "braver", "big": "bigger", "small": "smaller",
    "new": "newer", "old": "older", "cheap": "cheaper", "ugly": "uglier", "heavy": "heavier", "pretty": "prettier",
    "fast": "faster", "slow": "slower", "long": "longer", "easy": "easier", "sweet": "sweeter", "short": "shorter",
}  # fmt: skip
OF_PEOPLE = ("tall", "strong", "young", "thin", "rich", "nice", "funny", "kind", "lazy", "brave", "intelligent", "shy")
COMPARED_THINGS = "clothes device vehicle furniture carried"

PRONOUNS = (
    (Person.I, Phrase("me", "yo")), (Person.YOU, Phrase("you", "tú")), (Person.HE, Phrase("him", "él")),
    (Person.HE, Phrase("her", "ella")), (Person.WE, Phrase("us", "nosotros")), (Person.THEY, Phrase("them", "ellos")),
)  # fmt: skip


def identity(random: Random) -> Phrase:
    """`this is my brother`, `estos son mis libros`: the demonstrative agrees with what it points at."""
    what, near, negative = _identified(random), chance(random, 0.6), chance(random, 0.2)
    english = {True: ("these", "those"), False: ("this", "that")}[what.plural][not near]
    verb = Phrase("are" if what.plural else "is", "son" if what.plural else "es")
    return Phrase(
        words(english, verb.english, "not" if negative else "", what.english),
        words(pointing(what, near), "no" if negative else "", verb.spanish, what.spanish),
    )


def pointing(what: NounPhrase, near: bool) -> str:
    """The demonstrative pronoun for a noun phrase."""
    endings = {("m", False): "e", ("f", False): "a", ("m", True): "os", ("f", True): "as"}
    return ("est" if near else "es") + endings[what.gender, what.plural]


def comparison(random: Random) -> Phrase:
    """`my brother is taller than my sister`, `this car is as expensive as that car`."""
    if chance(random, 0.6):
        first = choose_plain_subject(random)
        return compared(random, first, adjective(pick(random, OF_PEOPLE)), _rival(random, first))
    thing = pick(random, of_kinds(COMPARED_THINGS))
    first = subject(noun_phrase(pick(random, ("the", "my", "this")), thing))
    second = noun_phrase(pick(random, ("his", "her", "your", "their", "that")), thing)
    return compared(random, first, pick(random, graded(fitting(thing, "ser"))), second)


def compared(random: Random, first: Subject, quality: Adjective, second: Phrase) -> Phrase:
    """More, or as much."""
    form = quality.agreeing(first.gender, first.plural)
    if chance(random, 0.7):
        degree = Phrase(f"{more(quality)} than {second.english}", f"más {form} que {second.spanish}")
    else:
        degree = Phrase(f"as {quality.english} as {second.english}", f"tan {form} como {second.spanish}")
    return Clause(first, Predicate(SER, degree.english, degree.spanish), Form.PRESENT, chance(random, 0.2)).statement()


def superlative(random: Random) -> Phrase:
    """`this is the biggest house in the city`, `esta es la casa más grande de la ciudad`."""
    kinds, whole = pick(random, (("building", "city"), ("room furniture", "house"), ("clothes vehicle device", "shop")))
    thing = pick(random, of_kinds(kinds))
    while not graded(fitting(thing, "ser")):
        thing = pick(random, of_kinds(kinds))
    quality, what, within = (
        pick(random, graded(fitting(thing, "ser"))),
        noun_phrase("the", thing),
        noun_phrase("the", noun(whole)),
    )
    name = what.english.removeprefix("the ")
    english = f"{'these are' if what.plural else 'this is'} the {most(quality)} {name} in {within.english}"
    described = f"{what.spanish} más {quality.agreeing(what.gender, what.plural)} {after('de', within.spanish)}"
    return Phrase(english, words(pointing(what, near=True), "son" if what.plural else "es", described))


def graded(adjectives: tuple[Adjective, ...]) -> tuple[Adjective, ...]:
    """Those that can be compared."""
    return tuple(word for word in adjectives if word.english not in UNGRADED)


def more(quality: Adjective) -> str:
    """`taller`, `more expensive`."""
    return ONE_WORD.get(quality.english) or f"more {quality.english}"


def most(quality: Adjective) -> str:
    """`tallest`, `most expensive`."""
    short = ONE_WORD.get(quality.english)
    return f"{short[:-1]}st" if short else f"most {quality.english}"


def _identified(random: Random) -> NounPhrase:
    """Something of somebody's that one can point at."""
    if chance(random, 0.3):
        return noun_phrase(pick(random, POSSESSIVES), pick(random, of_kinds("related pet")))
    thing, plural = (
        pick(random, of_kinds("clothes device vehicle furniture lost dwelling readable")),
        chance(random, 0.3),
    )
    if chance(random, 0.6):
        return noun_phrase(pick(random, POSSESSIVES), thing, plural)
    return owned(choose_owner(random), thing, plural)


def _rival(random: Random, first: Subject) -> Phrase:
    """Somebody to compare with, other than the subject."""
    ours = (Person.I, Person.WE)
    while True:
        if chance(random, 0.4):
            person, rival = pick(random, PRONOUNS)
            if person == first.english_person != Person.HE or (person in ours and first.english_person in ours):
                continue
            return rival
        other = pick(random, PEOPLE_WITH_NAMES)
        if chance(random, 0.5):
            other = subject(noun_phrase(pick(random, POSSESSIVES[:5]), pick(random, of_kinds("related"))))
        if other.english.split()[-1] not in first.english:
            return Phrase(other.english, other.spanish)
