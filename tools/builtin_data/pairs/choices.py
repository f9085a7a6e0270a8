"""Random choices of subjects, objects and verb forms that make sense together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import TypeVar

from builtin_data.pairs.adjectives import Adjective, adjectives_for
from builtin_data.pairs.clauses import Form
from builtin_data.pairs.nouns import Noun, noun, of_kinds
from builtin_data.pairs.phrases import NounPhrase, measured_noun, negated_noun, noun_phrase, possessed_noun
from builtin_data.pairs.subjects import (
    EVERYONE,
    HE,
    NOBODY,
    PEOPLE_WITH_NAMES,
    SHE,
    SOMEBODY,
    THEY,
    WE,
    YOU,
    YOU_ALL,
    I,
    Subject,
    subject,
    together,
)
from builtin_data.pairs.verbs import Verb

Item = TypeVar("Item")

PRONOUNS = (I, I, I, YOU, YOU, HE, HE, SHE, SHE, WE, WE, WE, THEY, THEY, YOU_ALL)
POSSESSIVES = ("my", "my", "my", "your", "your", "his", "her", "our", "their")
NUMBERS = ("two", "two", "three", "three", "four", "five", "six", "ten")

# Relative frequency of each form.
FORMS = {
    Form.CONTINUOUS: 6, Form.PRESENT: 5, Form.PAST: 5, Form.FUTURE: 3, Form.GOING: 3, Form.PERFECT: 3, Form.WANT: 3,
    Form.CAN: 2, Form.HAVE_TO: 2, Form.WAS: 1, Form.USED: 1, Form.JUST: 1, Form.MUST: 1, Form.SHOULD: 1, Form.NEED: 1,
    Form.PREFER: 1,
}  # fmt: skip
WITHOUT = {
    "sense": {Form.CONTINUOUS, Form.WAS, Form.JUST, Form.USED},
    "event": {Form.CONTINUOUS, Form.WAS, Form.USED, Form.PRESENT, Form.MUST, Form.SHOULD},
    "accident": set(FORMS) - {Form.PAST, Form.PERFECT},
    "state": set(FORMS) - {Form.PRESENT},
    "unwilled": set(FORMS) - {Form.PRESENT, Form.CONTINUOUS, Form.WAS, Form.PAST, Form.PERFECT},
}
POSITIVE_ONLY = {Form.JUST, Form.USED, Form.MUST, Form.PREFER}


def pick(random: Random, items: Sequence[Item]) -> Item:
    """One of the items, uniformly at random."""
    return items[int(random.random() * len(items))]


def chance(random: Random, probability: float) -> bool:
    """True with this probability."""
    return random.random() < probability


@cache
def forms_of(verb: Verb, among: tuple[Form, ...] = tuple(Form)) -> tuple[Form, ...]:
    """The forms in which a verb makes sense, repeated by their frequency."""
    barred = set().union(*(WITHOUT.get(flag, set()) for flag in verb.flags))
    return tuple(form for form, weight in FORMS.items() if form in among and form not in barred for _ in range(weight))


def choose_subject(random: Random, adult: bool = False) -> Subject:
    """A pronoun half of the time, otherwise a noun phrase or a name."""
    roll = random.random()
    if roll < 0.5:
        return pick(random, PRONOUNS)
    if roll < 0.62:
        return pick(random, PEOPLE_WITH_NAMES)
    if roll < 0.66:
        return choose_two_people(random)
    return subject(choose_person(random, adult))


def choose_plain_subject(random: Random) -> Subject:
    """A subject without adjectives, so that the sentence can add its own."""
    roll = random.random()
    if roll < 0.5:
        return pick(random, PRONOUNS)
    if roll < 0.62:
        return pick(random, PEOPLE_WITH_NAMES)
    if roll < 0.8:
        return subject(choose_relative(random, pick(random, POSSESSIVES)))
    plural = chance(random, 0.3)
    return subject(
        noun_phrase(pick(random, ("the", "the", "this", "that")), pick(random, of_kinds("somebody")), plural)
    )


def choose_two_people(random: Random) -> Subject:
    """Two people joined by `and`: `my mother and I`, `Ana and Luis`."""
    first = pick(random, PEOPLE_WITH_NAMES)
    if chance(random, 0.5):
        relative = subject(noun_phrase("my", pick(random, of_kinds("related"))))
        return together(pick(random, (first, relative)), I)
    second = pick(random, PEOPLE_WITH_NAMES)
    return together(first, second) if second is not first else together(first, I)


def choose_indefinite(random: Random) -> Subject:
    """`everyone`, `nobody` or `somebody`."""
    return pick(random, (EVERYONE, NOBODY, SOMEBODY))


def choose_relative(random: Random, possessive: str, kinds: str = "related") -> NounPhrase:
    """A family member, a friend or a neighbour."""
    relative = pick(random, of_kinds(kinds))
    plural = "several" in relative.kinds and chance(random, 0.2)
    return noun_phrase(possessive, relative, plural)


def choose_person(random: Random, adult: bool = False) -> NounPhrase:
    """A relative, or a person with an adjective."""
    if chance(random, 0.5):
        return choose_relative(random, pick(random, POSSESSIVES))
    somebody = pick(random, of_kinds("somebody"))
    while adult and "child" in somebody.kinds:
        somebody = pick(random, of_kinds("somebody"))
    plural = chance(random, 0.3)
    determiners = (
        ("the", "the", "the", "these", "two", "some", "three") if plural else ("the", "the", "the", "a", "this", "that")
    )
    quality = _perhaps(random, somebody, 0.3, "ser estar noun")
    return noun_phrase(_base(pick(random, determiners)), somebody, plural, quality)


def choose_possessive(random: Random, who: Subject) -> str:
    """The possessive of an object: most often the subject's."""
    if chance(random, 0.7):
        return who.possessive
    possessive = pick(random, POSSESSIVES)
    return "the" if possessive == "your" and who is YOU_ALL else possessive


def choose_thing(random: Random, kinds: str, who: Subject) -> NounPhrase:
    """A noun of one of the kinds, perhaps with an adjective, an amount or an owner."""
    thing = pick(random, of_kinds(kinds))
    if chance(random, 0.12) and thing.english in MEASURES:
        return pick(random, measures(thing))
    if chance(random, 0.05) and not thing.kinds.isdisjoint(OWNED):
        return possessed_noun(choose_owner(random), thing, adjective=_perhaps(random, thing, 0.2, "ser"))
    determiner, plural = pick(random, determiners(thing))
    if determiner == "own":
        determiner = "the" if _unowned(thing) else choose_possessive(random, who)
    quality = _quality(random, thing, determiner, plural)
    return noun_phrase(determiner, thing, plural, quality)


def choose_definite(random: Random, thing: Noun, described: float = 0.0) -> NounPhrase:
    """A definite noun phrase: `the keys`, `my car`, `Ana's coat`."""
    quality = _perhaps(random, thing, described, "ser")
    if chance(random, 0.08) and not thing.kinds.isdisjoint(OWNED):
        return possessed_noun(choose_owner(random), thing, adjective=quality)
    if thing.kinds & {"bare", "language", "science"}:
        return noun_phrase("", thing)
    countable = thing.kinds.isdisjoint(("mass", "only", "instrument", "light"))
    mine = "the" if _unowned(thing) else pick(random, POSSESSIVES)
    whose = ("the", "the", "the", "this", "that", mine) if countable else ("the",)
    return noun_phrase(pick(random, whose), thing, countable and chance(random, 0.3), quality)


def choose_general(random: Random, kinds: str, described: float = 0.25) -> NounPhrase:
    """A generic noun phrase: `apples`, `red wine`, `the piano`."""
    thing = pick(random, of_kinds(kinds))
    if thing.kinds & {"bare", "language", "science"}:
        return noun_phrase("", thing)
    if not thing.kinds.isdisjoint(DEFINITE_KINDS):
        return noun_phrase("the", thing)
    return noun_phrase("", thing, "mass" not in thing.kinds, _perhaps(random, thing, described, "ser"))


DEFINITE_KINDS = frozenset({"only", "instrument", "known", "named", "light", "surface", "room"})


def choose_one(random: Random, kinds: str, who: Subject) -> NounPhrase:
    """A singular noun, or one that comes in pairs."""
    thing = pick(random, of_kinds(kinds))
    own = choose_possessive(random, who)
    determiner = pick(
        random, ("", "the", "this", own) if "pair" in thing.kinds else ("a", "a", "a", "the", "this", own)
    )
    return noun_phrase(determiner, thing, adjective=_perhaps(random, thing, 0.4, "ser"))


def choose_amount(random: Random, kinds: str) -> NounPhrase:
    """A noun with a number or measure: `two apples`, `a lot of bread`, `a kilo of rice`."""
    thing = pick(random, of_kinds(kinds))
    if thing.english in MEASURES and chance(random, 0.3):
        return pick(random, measures(thing))
    if "mass" in thing.kinds:
        return noun_phrase(
            pick(random, ("", "", "the", "a lot of")), thing, adjective=_perhaps(random, thing, 0.15, "ser")
        )
    if "pair" in thing.kinds:
        return noun_phrase(pick(random, ("", "the", "this")), thing, adjective=_perhaps(random, thing, 0.3, "ser"))
    return noun_phrase(pick(random, AMOUNTS), thing, plural=True, adjective=_perhaps(random, thing, 0.25, "ser"))


AMOUNTS = (
    "",
    "",
    "",
    "the",
    "the",
    "some",
    "many",
    "several",
    "a lot of",
    "two",
    "three",
    "four",
    "five",
    "six",
    "ten",
)


def choose_absent(random: Random, kinds: str) -> NounPhrase:
    """The object of a negated verb: `any books`; not for nouns such as languages."""
    thing = pick(random, of_kinds(kinds))
    if thing.kinds & {"bare", "language", "science"}:
        return noun_phrase("", thing)
    return noun_phrase("the", thing) if thing.kinds & {"only", "pair", "known"} else negated_noun(thing)


def choose_owner(random: Random) -> NounPhrase:
    """The owner of a thing: `my brother`, `the teacher`, `Ana`."""
    if chance(random, 0.3):
        person = pick(random, PEOPLE_WITH_NAMES)
        return NounPhrase(person.english, person.spanish, person.gender, False, person.kinds)
    if chance(random, 0.5):
        return noun_phrase("the", pick(random, of_kinds("somebody")))
    return noun_phrase(pick(random, POSSESSIVES), pick(random, of_kinds("related")))


OWNED = frozenset({"vehicle", "clothes", "device", "lost", "readable", "dwelling", "furniture"})

# The measures of mass nouns; the Spanish of `glass` is fixed here, because glasses are also worn.
MEASURES = {
    "coffee": "cup", "tea": "cup", "milk": "glass bottle", "water": "glass bottle", "juice": "glass",
    "lemonade": "glass", "wine": "glass bottle", "beer": "glass bottle", "bread": "piece", "cheese": "piece kilo",
    "meat": "piece kilo", "chocolate": "piece", "rice": "kilo", "fish": "kilo", "chicken": "piece", "soup": "plate",
}  # fmt: skip
GLASS = Noun("glass", "glasses", "vaso", "vasos", "m", frozenset())
PIECE = Noun("piece", "pieces", "pedazo", "pedazos", "m", frozenset())
KILO = Noun("kilo", "kilos", "kilo", "kilos", "m", frozenset())


@cache
def measures(thing: Noun) -> tuple[NounPhrase, ...]:
    """`a cup of coffee`, `two cups of coffee`."""
    containers = {
        "glass": GLASS,
        "piece": PIECE,
        "kilo": KILO,
        "cup": noun("cup"),
        "bottle": noun("bottle"),
        "plate": noun("plate"),
    }
    chosen = [containers[name] for name in MEASURES[thing.english].split()]
    return tuple(
        measured_noun(determiner, container, thing, plural=determiner != "a")
        for container in chosen
        for determiner in ("a", "a", "two", "three")
    )


@cache
def determiners(thing: Noun) -> tuple[tuple[str, bool], ...]:
    """The determiners that a noun can take, each with its number, repeated by their frequency."""
    if thing.kinds & {"bare", "language", "science"}:
        return (("", False),)
    if thing.kinds & {"only", "known"}:
        return (("the", False),)
    if thing.kinds & {"named"}:
        return (("own", False), ("the", False))
    if "pair" in thing.kinds:
        return tuple((word, True) for word in ("own", "own", "the", "the", "this", "that", ""))
    if "instrument" in thing.kinds:
        return tuple((word, False) for word in ("the", "the", "the", "own"))
    if thing.kinds & {"light", "surface", "room"}:
        return (*[("the", False)] * 4, ("own", False), ("this", False))
    if "mass" in thing.kinds:
        return tuple(
            (word, False) for word in ("", "", "", "", "the", "the", "the", "own", "this", "a lot of", "all the")
        )
    return _COUNTED


_COUNTED = (
    *[(word, False) for word in ("a",) * 8 + ("the",) * 8 + ("own",) * 5 + ("this", "this", "that", "that", "another")],
    *[(word, True) for word in ("",) * 3 + ("the",) * 4 + ("own",) * 2 + ("this", "that", "some", "many", "several")],
    *[(word, True) for word in ("all the", "a lot of", *NUMBERS[:6:2], *NUMBERS[4:])],
)
_PLURALS = {"these": "this", "those": "that"}
_DEFINITE = frozenset({"the", "my", "your", "his", "her", "our", "their"})


def _unowned(thing: Noun) -> bool:
    """Whether it has no owner: places, stars and wild animals."""
    return "dwelling" not in thing.kinds and not thing.kinds.isdisjoint(("wild", "sky", "place"))


def _base(determiner: str) -> str:
    return _PLURALS.get(determiner, determiner)


def _quality(random: Random, thing: Noun, determiner: str, plural: bool) -> Adjective | None:
    """An adjective for the object of a verb; ordinals only with `the`, none after `all the`."""
    if determiner in ("all the", "another") or thing.kinds & {"bare", "language", "science"}:
        return None
    ordinal = determiner in _DEFINITE and not plural and chance(random, 0.1)
    return _perhaps(random, thing, 0.35, "order" if ordinal else "ser estar noun before")


def _perhaps(random: Random, thing: Noun, probability: float, uses: str) -> Adjective | None:
    if not chance(random, probability):
        return None
    adjectives = adjectives_for(thing, uses)
    return pick(random, adjectives) if adjectives else None
