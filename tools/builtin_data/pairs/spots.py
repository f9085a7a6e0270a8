"""Location and existence: `estar`, `hay`, and the prepositions of place."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from builtin_data.pairs.adjectives import adjectives_for
from builtin_data.pairs.choices import NUMBERS, chance, choose_definite, choose_plain_subject, pick
from builtin_data.pairs.circumstances import COUNTRIES, located, place
from builtin_data.pairs.clauses import ANYMORE, STILL, Clause, Form, Predicate
from builtin_data.pairs.nouns import Noun, noun, of_kinds
from builtin_data.pairs.phrases import NounPhrase, Phrase, join_words, noun_phrase
from builtin_data.pairs.states import ESTAR
from builtin_data.pairs.subjects import subject
from builtin_data.pairs.verbs import plain_verb
from builtin_data.table import rows

# relation | place | kinds of thing that may be there
SPOTS = """
on          | table; desk                      | small_thing kitchenware readable
on          | bed; chair; sofa                 | clothes carried pet
in          | box; bag; suitcase; backpack     | small_thing
in          | suitcase                         | clothes
in          | kitchen                          | kitchenware pet
in          | living room; room                | pet furniture
under       | table; bed; chair; sofa          | pet small_thing
under       | tree                             | pet
behind      | door; sofa                       | pet carried
behind      | house; tree                      | vehicle pet
next to     | window; door; bed; sofa          | furniture carried
next to     | house                            | vehicle plant
near        | window; door                     | pet furniture
in front of | house; school; museum; church    | vehicle driven
inside      | box                              | pet small_thing
"""
LIVE = plain_verb("live", "vivir")
TOWN_RELATIONS = ("near", "far from", "next to", "behind", "in front of")
HAUNTS = (
    "at home", "at school", "at work", "in the kitchen", "in the garden", "in the library", "at the restaurant",
    "at the hospital", "in the office", "on the beach", "at the market", "at the station", "at the museum",
    "in the street", "at the bank", "at the airport", "in the classroom", "at the hotel", "in the bathroom",
    "in the park", "at the cinema", "in front of the church", "near the river", "behind the house",
)  # fmt: skip


def whereabouts(random: Random) -> Clause:
    """`the keys are on the table`, `the bank is near the station`, `my brother is at home`."""
    roll = random.random()
    form = Form.PAST if chance(random, 0.25) else Form.PRESENT
    if roll < 0.4:
        who, where = choose_plain_subject(random), _place_of_person(random)
    elif roll < 0.6:
        building, landmark = _two_buildings(random)
        who, where, form = (
            subject(noun_phrase("the", building)),
            located(pick(random, TOWN_RELATIONS), landmark.english),
            Form.PRESENT,
        )
    else:
        thing, where = _spot(random)
        who = subject(choose_definite(random, thing))
    return Clause(who, Predicate(ESTAR, where.english, where.spanish), form, chance(random, 0.15))


def living(random: Random) -> Clause:
    """`my aunt lives in Peru`, `we live near the station`, `they want to live in a big house`."""
    form = pick(random, (Form.PRESENT, Form.PRESENT, Form.USED, Form.WANT, Form.WANT, Form.GOING))
    clause = Clause(choose_plain_subject(random), Predicate(LIVE).followed_by(_home(random)), form)
    roll = random.random()
    if form == Form.USED or roll > 0.35:
        return clause
    if form == Form.PRESENT and roll < 0.2:
        return replace(clause, adverb=STILL) if roll < 0.1 else replace(clause, adverb=ANYMORE, negative=True)
    return replace(clause, negative=True)


def existence(random: Random) -> Phrase:
    """`there are two books on the table`, `hay dos libros en la mesa`."""
    what, where, english, spanish = _what_there_is(random)
    return Phrase(f"there {english} {what.english} {where.english}", join_words(spanish, what.spanish, where.spanish))


def existence_asked(random: Random) -> Phrase:
    """`is there a cat under the table?`"""
    what, where, english, spanish = _what_there_is(random)
    return Phrase(
        f"{english} there {what.english} {where.english}?", f"¿{join_words(spanish, what.spanish, where.spanish)}?"
    )


def _what_there_is(random: Random) -> tuple[NounPhrase, Phrase, str, str]:
    """A thing, a place, and the verb for it in both languages."""
    thing, where = _spot(random)
    count = pick(
        random, ("two", "some") if "pair" in thing.kinds else ("a", "a", "a", *NUMBERS, "many", "some", "several")
    )
    if "pair" in thing.kinds:
        count = "some"
    adjectives = adjectives_for(thing, "ser")
    quality = pick(random, adjectives) if adjectives and chance(random, 0.35) else None
    what = noun_phrase(count, thing, count != "a", quality)
    if chance(random, 0.25):
        return what, where, "were" if what.plural else "was", "había"
    return what, where, "are" if what.plural else "is", "hay"


@cache
def _spots() -> tuple[tuple[Phrase, str, tuple[Noun, ...]], ...]:
    """Each place with its noun and the things that may be there."""
    return tuple(
        (located(relation, name.strip()), name.strip(), of_kinds(kinds))
        for relation, names, kinds in rows(SPOTS, 3)
        for name in names.split(";")
    )


def _spot(random: Random) -> tuple[Noun, Phrase]:
    where, landmark, things = pick(random, _spots())
    thing = pick(random, things)
    while thing.english == landmark:
        thing = pick(random, things)
    return thing, where


def _place_of_person(random: Random) -> Phrase:
    """Where a person may be: a place, a city or a country."""
    if chance(random, 0.2):
        english, spanish = pick(random, COUNTRIES)
        return Phrase(f"in {english}", f"en {spanish}")
    return place(pick(random, HAUNTS))


def _home(random: Random) -> Phrase:
    """Where a person may live: a country, a house, a village, or near a landmark."""
    roll = random.random()
    if roll < 0.35:
        english, spanish = pick(random, COUNTRIES)
        return Phrase(f"in {english}", f"en {spanish}")
    if roll < 0.65:
        home = pick(random, (noun("house"), noun("village"), noun("city")))
        quality = pick(random, adjectives_for(home, "ser")) if chance(random, 0.7) else None
        house = noun_phrase(pick(random, ("a", "a", "this")), home, adjective=quality)
        return Phrase(f"in {house.english}", f"en {house.spanish}")
    landmark = pick(random, of_kinds("building shop outside"))
    return located(pick(random, ("near", "near", "far from", "next to", "in front of", "behind")), landmark.english)


def _two_buildings(random: Random) -> tuple[Noun, Noun]:
    first, second = pick(random, of_kinds("building shop")), pick(random, of_kinds("place"))
    while first is second or second.kinds & {"road", "town"}:
        second = pick(random, of_kinds("place"))
    return first, second
