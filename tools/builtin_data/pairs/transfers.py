"""Ditransitive verbs (give, show, tell); Spanish doubles the receiver with a pronoun."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from builtin_data.pairs.actions import choose_person_object, choose_pronoun, disambiguate_past, timed_clause
from builtin_data.pairs.adjectives import adjectives_for
from builtin_data.pairs.choices import POSITIVE_ONLY, chance, choose_possessive, choose_subject, forms_of, pick
from builtin_data.pairs.clauses import Clause, Form, Predicate
from builtin_data.pairs.nouns import of_kinds
from builtin_data.pairs.phrases import NounPhrase, Phrase, join_words, noun_phrase, with_preposition
from builtin_data.pairs.subjects import YOU, Subject
from builtin_data.pairs.verbs import TAKING_PEOPLE, Verb, plain_verb
from builtin_data.table import rows

# english | spanish | kinds of thing | command with `me` | preposition of the English receiver
GIVING = """
give     | dar      | gift small_thing sweet  | dame       | to
show     | mostrar  | seen small_thing device | muéstrame  | to
send     | enviar   | sendable                | envíame    | to
bring    | traer    | order sweet             | tráeme     | to
lend     | prestar  | vehicle thing           | préstame   | to
read     | leer     | told readable           | léeme      | to
tell     | contar   | told                    | cuéntame   | to
tell     | decir    | told_truth              | dime       | to
buy      | comprar  | gift clothes sweet      | cómprame   |
explain  | explicar | asked                   | explícame  | only to
"""


@dataclass(frozen=True, slots=True)
class Giving:
    """A ditransitive verb."""

    verb: Verb
    things: str
    to_me: str
    order: str  # `to`: either order in English; `only to`: the thing first; empty: the receiver first


GIVERS = tuple(
    Giving(plain_verb(english, spanish), things, to_me, order)
    for english, spanish, things, to_me, order in rows(GIVING, 5)
)


def giving(random: Random, timed: bool = True) -> Clause:
    """`my father gave me a watch`, `mi padre me dio un reloj`."""
    way, who = pick(random, GIVERS), choose_subject(random, adult=True)
    form = pick(random, forms_of(way.verb))
    negative = form not in POSITIVE_ONLY and chance(random, 0.15)
    thing = gift(random, way, who)
    if chance(random, 0.65):
        english, _, pronoun, _ = choose_pronoun(random, who)
        while thing.english.startswith(english):  # not `her her book`
            thing = gift(random, way, who)
        clause = Clause(who, to_pronoun(way, thing, english, pronoun), form, negative)
    else:
        receiver = choose_person_object(random, TAKING_PEOPLE[1], who)
        clause = Clause(who, to_person(way, thing, receiver, chance(random, 0.5)), form, negative)
    if timed and chance(random, 0.9 if form == Form.PRESENT else 0.25):
        return timed_clause(random, clause)
    return disambiguate_past(random, clause, timed)


def gift(random: Random, way: Giving, who: Subject) -> NounPhrase:
    """What is given; always with a determiner, since `her books` would be ambiguous."""
    thing = pick(random, of_kinds(way.things))
    if thing.kinds & {"mass", "only"}:
        return noun_phrase("the", thing)
    counts = () if "pair" in thing.kinds else ("a", "a", "two", "some")
    determiner = pick(random, (*counts, "the", "the", "this", choose_possessive(random, who)))
    adjectives = adjectives_for(thing, "ser noun")
    quality = pick(random, adjectives) if adjectives and chance(random, 0.2) else None
    return noun_phrase(determiner, thing, determiner in ("two", "some"), quality)


def to_pronoun(way: Giving, thing: NounPhrase, english: str, pronoun: str) -> Predicate:
    """`gives me a book`; with some verbs `explains a book to me`."""
    order = f"{thing.english} to {english}" if way.order == "only to" else f"{english} {thing.english}"
    return Predicate(way.verb, order, thing.spanish, pronoun)


def to_person(way: Giving, thing: NounPhrase, receiver: NounPhrase, person_first: bool) -> Predicate:
    """`gives my sister a book` or `gives a book to my sister`: `le da un libro a mi hermana`."""
    first = way.order == "" or (person_first and way.order == "to")
    english = f"{receiver.english} {thing.english}" if first else f"{thing.english} to {receiver.english}"
    spanish = f"{thing.spanish} {with_preposition('a', receiver.spanish)}"
    return Predicate(way.verb, english, spanish, "les" if receiver.plural else "le")


def asking_for(random: Random) -> Phrase:
    """`give me the book, please`, `dame el libro, por favor`."""
    way = pick(random, GIVERS)
    thing = gift(random, way, YOU)
    please = Phrase(", please", ", por favor") if chance(random, 0.5) else Phrase("", "")
    english = join_words(way.verb.english, to_pronoun(way, thing, "me", "").english)
    return Phrase(english + please.english, f"{way.to_me} {thing.spanish}{please.spanish}")
