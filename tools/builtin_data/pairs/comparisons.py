"""Identity, comparison and superlatives: `this is my car`, `it is bigger`, `the biggest`."""

from __future__ import annotations

from random import Random

from builtin_data.pairs.adjectives import Adjective, adjective, adjectives_for
from builtin_data.pairs.choices import POSSESSIVES, chance, choose_owner, choose_plain_subject, pick
from builtin_data.pairs.clauses import Clause, Form, Predicate
from builtin_data.pairs.nouns import noun, of_kinds
from builtin_data.pairs.phrases import NounPhrase, Phrase, join_words, noun_phrase, possessed_noun, with_preposition
from builtin_data.pairs.spanish_verbs import Person
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
        join_words(english, verb.english, "not" if negative else "", what.english),
        join_words(demonstrative(what, near), "no" if negative else "", verb.spanish, what.spanish),
    )


def demonstrative(what: NounPhrase, near: bool) -> str:
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
    return compared(random, first, pick(random, gradable(adjectives_for(thing, "ser"))), second)


def compared(random: Random, first: Subject, quality: Adjective, second: Phrase) -> Phrase:
    """A comparative, or an equality: `as … as`."""
    form = quality.form_for(first.gender, first.plural)
    if chance(random, 0.7):
        degree = Phrase(f"{comparative_form(quality)} than {second.english}", f"más {form} que {second.spanish}")
    else:
        degree = Phrase(f"as {quality.english} as {second.english}", f"tan {form} como {second.spanish}")
    return Clause(first, Predicate(SER, degree.english, degree.spanish), Form.PRESENT, chance(random, 0.2)).statement()


def superlative(random: Random) -> Phrase:
    """`this is the biggest house in the city`, `esta es la casa más grande de la ciudad`."""
    kinds, whole = pick(random, (("building", "city"), ("room furniture", "house"), ("clothes vehicle device", "shop")))
    thing = pick(random, of_kinds(kinds))
    while not gradable(adjectives_for(thing, "ser")):
        thing = pick(random, of_kinds(kinds))
    quality, what, within = (
        pick(random, gradable(adjectives_for(thing, "ser"))),
        noun_phrase("the", thing),
        noun_phrase("the", noun(whole)),
    )
    name = what.english.removeprefix("the ")
    english = f"{'these are' if what.plural else 'this is'} the {superlative_form(quality)} {name} in {within.english}"
    described = (
        f"{what.spanish} más {quality.form_for(what.gender, what.plural)} {with_preposition('de', within.spanish)}"
    )
    return Phrase(english, join_words(demonstrative(what, near=True), "son" if what.plural else "es", described))


def gradable(adjectives: tuple[Adjective, ...]) -> tuple[Adjective, ...]:
    """The adjectives that have a comparative."""
    return tuple(word for word in adjectives if word.english not in UNGRADED)


def comparative_form(quality: Adjective) -> str:
    """`taller`, `more expensive`."""
    return ONE_WORD.get(quality.english) or f"more {quality.english}"


def superlative_form(quality: Adjective) -> str:
    """`tallest`, `most expensive`."""
    short = ONE_WORD.get(quality.english)
    return f"{short[:-1]}st" if short else f"most {quality.english}"


def _identified(random: Random) -> NounPhrase:
    """A noun phrase that `this is` can introduce."""
    if chance(random, 0.3):
        return noun_phrase(pick(random, POSSESSIVES), pick(random, of_kinds("related pet")))
    thing, plural = (
        pick(random, of_kinds("clothes device vehicle furniture lost dwelling readable")),
        chance(random, 0.3),
    )
    if chance(random, 0.6):
        return noun_phrase(pick(random, POSSESSIVES), thing, plural)
    return possessed_noun(choose_owner(random), thing, plural)


def _rival(random: Random, first: Subject) -> Phrase:
    """Another person to compare with."""
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
