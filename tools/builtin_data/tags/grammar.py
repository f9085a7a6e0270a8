"""A grammar of tagged sentences: phrases are lists of (word, tag), built from small to large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from builtin_data.tags import words as lists

Words = list[tuple[str, str]]
PLURALS = {"man": "men", "woman": "women", "child": "children", "fish": "fish"}


def pick(random: Random, items: Sequence[str]) -> str:
    """One of the items, at random."""
    return items[int(random.random() * len(items))]


def tagged(text: str) -> Words:
    """Parse words written with their tags.

    >>> tagged("to/PART be/AUX")
    [('to', 'PART'), ('be', 'AUX')]
    """
    return [(word, tag) for word, _, tag in (pair.rpartition("/") for pair in text.split())]


def plural(noun: str) -> str:
    """The plural of a noun.

    >>> plural("watch"), plural("child"), plural("story"), plural("play")
    ('watches', 'children', 'stories', 'plays')
    """
    if noun in PLURALS:
        return PLURALS[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def noun_phrase(random: Random, noun: str, many: bool, qualities: Sequence[str]) -> Words:
    """A noun with a determiner or number, and perhaps an adjective."""
    name = (plural(noun) if many else noun, "NOUN")
    quality = [(pick(random, qualities), "ADJ")] if random.random() < 0.35 else []
    if noun in lists.UNCOUNTED:
        return [("the", "DET"), name]
    roll = random.random()
    if roll < 0.2:
        return [(pick(random, lists.POSSESSIVES), "PRON"), *quality, name]
    if many and roll < 0.5:
        return [(pick(random, lists.NUMBERS), "NUM"), *quality, name]
    if many:
        return [(pick(random, lists.PLURAL_ARTICLES), "DET"), *quality, name]
    article = pick(random, lists.ARTICLES)
    following = quality[0][0] if quality else noun
    return [("an" if article == "a" and following[0] in "aeiou" else article, "DET"), *quality, name]


def person(random: Random) -> tuple[Words, bool]:
    """A person as a subject, and whether its verb is plural."""
    roll = random.random()
    if roll < 0.3:
        pronoun = pick(random, lists.SUBJECTS)
        return [(pronoun, "PRON")], pronoun not in ("he", "she")
    if roll < 0.5:
        return [(pick(random, lists.NAMES), "PROPN")], False
    if roll < 0.58:
        first, second = random.sample(lists.NAMES, 2)
        return [(first, "PROPN"), ("and", "CONJ"), (second, "PROPN")], True
    if roll < 0.66:
        return [(pick(random, lists.NAMES), "PROPN"), ("'s", "PART"), (pick(random, lists.PEOPLE[4:]), "NOUN")], False
    many = random.random() < 0.4
    return noun_phrase(random, pick(random, lists.PEOPLE), many, lists.OF_PEOPLE), many


def place(random: Random, act: str = "") -> Words:
    """A preposition and a place; paths only for verbs of motion."""
    if random.random() < 0.2:
        return [(pick(random, ("in", "near")), "ADP"), (pick(random, lists.TOWNS), "PROPN")]
    preposition, places = random.choice(lists.ANYWHERE if act in lists.MOTIONS else lists.BEING)
    where = pick(random, places)
    if where == "back":
        return [(preposition, "ADP"), ("the", "DET"), (where, "NOUN")]
    quality = [(pick(random, lists.BESIDE_PLACES), "ADJ")] if random.random() < 0.25 else []
    owner = [(pick(random, lists.POSSESSIVES), "PRON")] if random.random() < 0.15 else [("the", "DET")]
    return [(preposition, "ADP"), *owner, *quality, (where, "NOUN")]


@dataclass(frozen=True, slots=True)
class Action:
    """A verb in all its forms, with its object if it takes one."""

    forms: tuple[str, ...]  # base, third person, past, -ing
    rest: Words

    @property
    def base(self) -> str:
        """The infinitive."""
        return self.forms[0]


def choose_action(random: Random) -> Action:
    """A verb, with an object if it takes one."""
    return with_object(random) if random.random() < 0.6 else Action(random.choice(lists.INTRANSITIVE), [])


def with_object(random: Random) -> Action:
    """A transitive verb with its object."""
    forms, objects, people = random.choice(lists.TRANSITIVE)
    if people and random.random() < 0.25:
        return Action(forms, [(pick(random, lists.OBJECTS), "PRON")])
    noun = pick(random, objects)
    qualities = lists.OF_IDEAS if noun in lists.IDEAS else lists.OF_ACTS if noun in lists.ACTS else lists.BESIDE_THINGS
    return Action(forms, noun_phrase(random, noun, random.random() < 0.3 and noun not in lists.UNCOUNTED, qualities))


def finite(random: Random, forms: Sequence[str], many: bool) -> Words:
    """The verb in the present or past tense."""
    return [(forms[2] if random.random() < 0.5 else forms[0 if many else 1], "VERB")]


def clause(random: Random, who: Words, many: bool) -> Words:
    """A subject with a predicate in a random tense or with an auxiliary."""
    act, roll = choose_action(random), random.random()
    if roll < 0.35:
        group = finite(random, act.forms, many)
    elif roll < 0.6:
        negation = [("not", "PART")] if random.random() < 0.25 else []
        group = [(pick(random, lists.MODALS), "AUX"), *negation, (act.base, "VERB")]
    elif roll < 0.75:
        group = [(form_of_be(random, who, many), "AUX"), (act.forms[3], "VERB")]
    elif roll < 0.85:
        helper = "did" if random.random() < 0.4 else "do" if many else "does"
        group = [(helper, "AUX"), ("not", "PART"), (act.base, "VERB")]
    else:
        group = [(pick(random, lists.FREQUENCY), "ADV"), *finite(random, act.forms, many)]
    return [*who, *group, *act.rest, *_ending(random, act)]


def form_of_be(random: Random, who: Words, many: bool) -> str:
    """A form of `to be`."""
    if who == [("I", "PRON")]:
        return pick(random, ("am", "was"))
    return pick(random, ("are", "were") if many else ("is", "was"))


def _ending(random: Random, act: Action) -> Words:
    roll = random.random()
    if roll < 0.25:
        return place(random, act.base)
    if roll < 0.42:
        return [(pick(random, lists.ACT_MANNER if act.rest else lists.MANNER), "ADV")]
    if roll < 0.48:
        return [("in", "ADP"), (pick(random, lists.MONTHS), "PROPN")]
    return []
