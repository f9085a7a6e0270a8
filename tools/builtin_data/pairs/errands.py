"""Errands with a purpose, and reflexive verbs of dressing and washing."""

from __future__ import annotations

from random import Random

from builtin_data.pairs.actions import disambiguate_past, timed_clause
from builtin_data.pairs.choices import POSITIVE_ONLY, chance, choose_plain_subject, forms_of, pick
from builtin_data.pairs.circumstances import phrases
from builtin_data.pairs.clauses import Clause, Form, Predicate
from builtin_data.pairs.nouns import of_kinds
from builtin_data.pairs.phrases import Phrase, join_words, noun_phrase, with_preposition
from builtin_data.pairs.shorthand import phrase, predicates
from builtin_data.pairs.subjects import YOU_ALL, Subject
from builtin_data.pairs.verbs import Verb, plain_verb, verb
from builtin_data.table import rows

# destination | purposes; a `+` marks the object
ERRANDS = tuple(
    (phrase(f"the {place}"), predicates(purposes))
    for place, purposes in rows(
        """
        library      | study; read; study + history; learn + French; write + a letter; read + the newspaper
        park         | run; take a walk; rest; play + football; read + a book; take photos
        beach        | swim; rest; take a walk; read + a novel; take photos
        lake         | swim; rest; take photos
        restaurant   | have dinner; have lunch; eat; eat + fish; drink + coffee
        kitchen      | have breakfast; cook; prepare + dinner; drink + water; eat + bread; wash the dishes
        garden       | read; rest; water the plants; take a nap; play cards
        university   | study; study + biology; learn + English; study + literature
        school       | study; learn + Spanish; study + mathematics
        square       | dance; take photos; listen to + music; sing
        market       | buy + fruit; buy + bread; buy + meat; sell + apples; buy + tomatoes; buy + oranges
        bakery       | buy + bread; buy + a cake
        shop         | buy + a shirt; buy + a notebook; buy + a hat; buy + an umbrella
        cinema       | watch + a film
        museum       | see + the paintings; take photos
        office       | work; write + a report
        """,
        2,
    )
)
NEXT = phrases("""
    before eating         | antes de comer
    before sleeping       | antes de dormir
    before studying       | antes de estudiar
    before cooking        | antes de cocinar
    after eating          | después de comer
    after working         | después de trabajar
    after playing         | después de jugar
    after running         | después de correr
""")
GO = verb("go")
WASH, PUT_ON, TAKE_OFF = (
    plain_verb("wash", "lavarse"),
    plain_verb("put on", "ponerse"),
    plain_verb("take off", "quitarse"),
)
GOING_FORMS = (Form.CONTINUOUS, Form.CONTINUOUS, Form.PAST, Form.WANT, Form.HAVE_TO, Form.FUTURE)


def errand(random: Random) -> Clause:
    """`we are going to the library to study`, `vamos a la biblioteca para estudiar`."""
    where, purposes = pick(random, ERRANDS)
    go = Predicate(GO, f"to {where.english}", with_preposition("a", where.spanish)).followed_by(
        purpose(pick(random, purposes))
    )
    clause = Clause(choose_plain_subject(random), go, pick(random, GOING_FORMS), chance(random, 0.1))
    return timed_clause(random, clause) if chance(random, 0.15) else clause


def purpose(aim: Predicate) -> Phrase:
    """`to study`, `para estudiar`."""
    return Phrase(join_words("to", aim.verb.english, aim.english), join_words("para", aim.verb.infinitive, aim.spanish))


def dressing(random: Random) -> Clause:
    """`she is washing her hands`, `ella se está lavando las manos`: the pronoun marks the owner."""
    who, word = choose_plain_subject(random), pick(random, (WASH, WASH, PUT_ON, TAKE_OFF))
    while who is YOU_ALL:
        who = choose_plain_subject(random)
    form = pick(random, forms_of(word))
    clause = Clause(
        who, body_part_or_clothes(random, who, word), form, form not in POSITIVE_ONLY and chance(random, 0.15)
    )
    if word is WASH and chance(random, 0.4):
        return disambiguate_past(random, clause, timed=False).followed_by(pick(random, NEXT))
    return timed_clause(random, clause) if chance(random, 0.2) else disambiguate_past(random, clause, timed=True)


def body_part_or_clothes(random: Random, who: Subject, word: Verb) -> Predicate:
    """A body part or clothes of the subject; of several people what comes in pairs, as it is plural in Spanish too."""
    if word is WASH:
        part = noun_phrase("the", pick(random, of_kinds("washed")), plural=True)
    else:
        part = noun_phrase("the", pick(random, of_kinds("clothes") if not who.plural else PAIRS))
    return Predicate(word, part.english.replace("the", who.possessive, 1), part.spanish)


PAIRS = tuple(clothes for clothes in of_kinds("clothes") if "pair" in clothes.kinds)
