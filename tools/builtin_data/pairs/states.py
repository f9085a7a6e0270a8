"""States of people and things: `ser` for permanent properties, `estar` for temporary ones, `tener` for feelings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from builtin_data.pairs.adjectives import NATIONALITIES, OCCUPATIONS, Adjective, adjectives_for
from builtin_data.pairs.choices import chance, choose_definite, choose_plain_subject, choose_subject, pick
from builtin_data.pairs.circumstances import COUNTRIES
from builtin_data.pairs.clauses import ALWAYS, NEVER, STILL, YET, Clause, Form, Predicate
from builtin_data.pairs.nouns import Noun, noun, of_kinds
from builtin_data.pairs.phrases import join_words
from builtin_data.pairs.subjects import YOU_ALL, Subject, subject
from builtin_data.pairs.verbs import plain_verb
from builtin_data.table import rows

SER, ESTAR, TENER = (plain_verb("be", spanish) for spanish in ("ser", "estar", "tener"))

# english | object of `tener` | its form of `very`
FEELINGS = tuple(
    rows(
        """
        hungry      | hambre | mucha
        thirsty     | sed    | mucha
        cold        | frío   | mucho
        hot         | calor  | mucho
        sleepy      | sueño  | mucho
        afraid      | miedo  | mucho
        lucky       | suerte | mucha
        in a hurry  | prisa  |
        right       | razón  |
        """,
        3,
    )
)
CHANGING = ("hungry", "thirsty", "sleepy", "cold", "hot", "ready", "open", "tired")  # states that can be `not yet`

AGES = (
    ("five", "cinco"), ("six", "seis"), ("eight", "ocho"), ("nine", "nueve"), ("ten", "diez"), ("twelve", "doce"),
    ("fifteen", "quince"), ("eighteen", "dieciocho"), ("twenty", "veinte"), ("thirty", "treinta"),
    ("forty", "cuarenta"), ("fifty", "cincuenta"), ("sixty", "sesenta"), ("seventy", "setenta"),
)  # fmt: skip
CHILDREN, GROWN = slice(0, 6), slice(9, 14)

COLOURS = ("red", "blue", "green", "yellow", "white", "black", "grey", "brown", "purple")
UNGRADED = frozenset(COLOURS) | {"delicious", "broken", "open", "closed", "ready", "alone", "empty", "full"}
DESCRIBED = (
    "clothes device vehicle furniture building work readable warm opened hard room fruit meal shop outside animal"
)


def feeling(random: Random) -> Clause:
    """`I am not hungry yet`, `todavía no tengo hambre`."""
    english, spanish, much = pick(random, FEELINGS)
    form = Form.PAST if chance(random, 0.2) else Form.PRESENT
    who = choose_subject(random)
    while who is YOU_ALL and english == "right":  # would read as `all right`
        who = choose_subject(random)
    clause = Clause(who, Predicate(TENER, english, spanish), form)
    if much and chance(random, 0.15):
        return replace(clause, predicate=Predicate(TENER, f"very {english}", f"{much} {spanish}"))
    return _perhaps_not_yet(random, clause, english)


def quality_of_person(random: Random) -> Clause:
    """`my sister is tired`, `they are very tall`."""
    who = choose_plain_subject(random)
    return copula_clause(random, who, pick(random, qualities(who, "ser estar state")))


def mood(random: Random) -> Clause:
    """A temporary state of a person."""
    who = choose_plain_subject(random)
    return copula_clause(random, who, pick(random, qualities(who, "estar state")))


def quality_of_thing(random: Random) -> Clause:
    """`the soup is cold`, `these shoes are expensive`."""
    thing = pick(random, describable())
    return copula_clause(
        random, subject(choose_definite(random, thing)), pick(random, adjectives_for(thing, "ser estar state"))
    )


def copula_clause(random: Random, who: Subject, quality: Adjective) -> Clause:
    """A subject with an adjective; only temporary states are put in the past."""
    passing = quality.use in ("estar", "state")
    form = Form.PAST if passing and chance(random, 0.25) else Form.PRESENT
    if quality.english not in UNGRADED and chance(random, 0.2):
        return Clause(who, be_predicate(who, quality, very=True), form)
    clause = Clause(who, be_predicate(who, quality), form)
    return _perhaps_not_yet(random, clause, quality.english) if passing else _perhaps_not(random, clause)


def be_predicate(who: Subject, quality: Adjective, very: bool = False) -> Predicate:
    """`to be` and an adjective that agrees with the subject."""
    verb = ESTAR if quality.use in ("estar", "state") else SER
    form = quality.form_for(who.gender, who.plural)
    return Predicate(verb, join_words("very" if very else "", quality.english), join_words("muy" if very else "", form))


def occupation(random: Random) -> Clause:
    """`my mother is a doctor`, `mi madre es médica`: Spanish drops the article."""
    who, work = choose_subject(random), pick(random, OCCUPATIONS)
    while "somebody" in who.kinds:
        who = choose_subject(random)
    article = "an" if work.english[0] in "aeiou" else "a"
    english = f"{work.english}s" if who.plural else f"{article} {work.english}"
    return _perhaps_not(
        random, Clause(who, Predicate(SER, english, work.form_for(who.gender, who.plural)), Form.PRESENT)
    )


def origin(random: Random) -> Clause:
    """`she is Mexican`, `we are from Peru`."""
    who = choose_subject(random)
    if chance(random, 0.5):
        return _perhaps_not(random, Clause(who, be_predicate(who, pick(random, NATIONALITIES)), Form.PRESENT))
    english, spanish = pick(random, COUNTRIES)
    return _perhaps_not(random, Clause(who, Predicate(SER, f"from {english}", f"de {spanish}"), Form.PRESENT))


def age(random: Random) -> Clause:
    """`my sister is twenty years old`, `mi hermana tiene veinte años`."""
    who = choose_plain_subject(random)
    parent = "related" in who.kinds and "several" not in who.kinds
    ages = AGES[CHILDREN] if "child" in who.kinds else AGES[GROWN] if parent or "somebody" in who.kinds else AGES
    english, spanish = pick(random, ages)
    return _perhaps_not(random, Clause(who, Predicate(TENER, f"{english} years old", f"{spanish} años"), Form.PRESENT))


@cache
def describable() -> tuple[Noun, ...]:
    """The nouns that at least one adjective can modify."""
    return tuple(thing for thing in of_kinds(DESCRIBED) if adjectives_for(thing, "ser estar state"))


def qualities(who: Subject, uses: str) -> tuple[Adjective, ...]:
    """The adjectives that can modify a person."""
    return adjectives_for(noun("boy" if "child" in who.kinds else "man"), uses)


def _perhaps_not(random: Random, clause: Clause) -> Clause:
    return replace(clause, negative=True) if chance(random, 0.2) else clause


def _perhaps_not_yet(random: Random, clause: Clause, quality: str) -> Clause:
    """The clause unchanged, negated, or with an adverb: `still`, `always`, `never`, `not yet`."""
    present, roll = clause.form == Form.PRESENT, random.random()
    if roll < 0.3:
        yet = present and quality in CHANGING and chance(random, 0.5)
        return replace(clause, negative=True, adverb=YET if yet else None)
    if roll < 0.5 and present:
        return replace(clause, adverb=pick(random, (ALWAYS, STILL, STILL, NEVER)))
    return clause
