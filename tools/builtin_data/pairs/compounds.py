"""Two clauses in one sentence: and, but, that, when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from builtin_data.pairs.actions import ClauseOptions, action
from builtin_data.pairs.choices import chance, choose_general, choose_plain_subject, pick
from builtin_data.pairs.circumstances import phrases
from builtin_data.pairs.clauses import Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.nouns import noun, of_kinds
from builtin_data.pairs.phrases import Phrase, conjunction, noun_phrase
from builtin_data.pairs.reasons import join_clauses, pronoun_for
from builtin_data.pairs.spanish_verbs import Person
from builtin_data.pairs.spots import whereabouts
from builtin_data.pairs.states import age, feeling, occupation, origin, quality_of_person
from builtin_data.pairs.subjects import HE, PRONOUNS, SHE, THEY, WE, I, Subject
from builtin_data.pairs.verbs import TAKING_THINGS, plain_verb, verb
from builtin_data.table import rows

THINK, KNOW, SAY = plain_verb("think", "creer"), plain_verb("know", "saber"), plain_verb("say", "decir")
BUT = Phrase("but", "pero")
STATES: tuple[Callable[[Random], Clause], ...] = (feeling, quality_of_person, origin, age, occupation, whereabouts)
PARALLEL = (Form.CONTINUOUS, Form.PAST, Form.FUTURE, Form.WANT, Form.GOING)
CONTRASTED = ("eat", "drink", "speak", "study", "learn", "cook", "want", "play", "read", "wear", "sell")
CONTRASTED_VERBS = tuple(word for word in TAKING_THINGS if word.english in CONTRASTED)

INTERRUPTIONS = phrases("""
    you called            | llamaste
    you arrived           | llegaste
    I arrived             | llegué
    we arrived            | llegamos
    my mother called      | llamó mi madre
    my brother arrived    | llegó mi hermano
    the teacher arrived   | llegó el profesor
    the phone rang        | sonó el teléfono
    the bus arrived       | llegó el autobús
    it started to rain    | empezó a llover
    the film started      | empezó la película
""")

# a wish | what it requires
MEANS = tuple(
    rows(
        """
        travel         | money
        buy            | money
        buy            | money
        buy            | money
        go shopping    | money
        rest           | time
        have breakfast | time
        have lunch     | time
        take a walk    | time
        cook           | time
        take a shower  | time
        take a nap     | time
        """,
        2,
    )
)


def two_statements(random: Random) -> Phrase:
    """`my brother is reading and my sister is sleeping`."""
    options = ClauseOptions((pick(random, PARALLEL),), positive=True, plain=True)
    first, second = _third_person_clause(random, options), _third_person_clause(random, options)
    while _alike(first, second):
        second = _third_person_clause(random, options)
    one, two = first.statement(), second.statement()
    return Phrase(f"{one.english} and {two.english}", f"{one.spanish} {conjunction('y', two.spanish)} {two.spanish}")


def contrast(random: Random) -> Phrase:
    """`he eats meat but he does not eat fish`, `él come carne pero no come pescado`."""
    word, who = pick(random, CONTRASTED_VERBS), choose_plain_subject(random)
    wish = (Form.PRESENT, Form.WANT, Form.WANT, Form.CAN)
    form = Form.PRESENT if word.flags & {"state", "plain"} else pick(random, wish)
    first, second = choose_general(random, word.objects, 0), choose_general(random, word.objects, 0)
    while first == second:
        second = choose_general(random, word.objects, 0)
    return join_clauses(
        Clause(who, verb_phrase(word, first), form), BUT, Clause(who, verb_phrase(word, second), form, negative=True)
    )


def lack_of_means(random: Random) -> Phrase:
    """`she wants to travel but she does not have money`."""
    (wish, means), who = pick(random, MEANS), choose_plain_subject(random)
    thing = noun_phrase("a", pick(random, BOUGHT)) if wish == "buy" else None
    have = Predicate(verb("have"), means, noun(means).spanish)
    return join_clauses(
        Clause(who, verb_phrase(verb(wish), thing), Form.WANT), BUT, Clause(who, have, Form.PRESENT, negative=True)
    )


BOUGHT = tuple(thing for thing in of_kinds("clothes vehicle gift device furniture") if "pair" not in thing.kinds)


def reported(random: Random) -> Phrase:
    """`I think that my brother is sleeping`, `creo que mi hermano está durmiendo`."""
    who, thinking = choose_plain_subject(random), pick(random, (THINK, THINK, KNOW, SAY))
    inner = pick(random, STATES)(random) if chance(random, 0.4) else action(random)
    while _unreportable(who, inner.subject):
        inner = action(random)
    if inner.subject in (HE, SHE, THEY) and inner.subject.possessive == who.possessive:
        inner = replace(inner, subject=pronoun_for(inner.subject))
    told = inner.statement()
    return Clause(who, Predicate(thinking, f"that {told.english}", f"que {told.spanish}"), Form.PRESENT).statement()


def interrupted(random: Random) -> Phrase:
    """`I was sleeping when you called`, `estaba durmiendo cuando llamaste`."""
    clause, event = action(random, ClauseOptions((Form.WAS,), timed=False)), pick(random, INTERRUPTIONS)
    while _same(clause.subject, event.english):
        event = pick(random, INTERRUPTIONS)
    told = clause.statement()
    return Phrase(f"{told.english} when {event.english}", f"{told.spanish} cuando {event.spanish}")


def _unreportable(who: Subject, whose: Subject) -> bool:
    """True for `that that man`, `Ana thinks that Ana`, and `we think that I`."""
    repeated = whose == who and who not in PRONOUNS
    return whose.english.startswith(("that ", "those ")) or repeated or (who is WE and whose is I)


def _same(who: Subject, event: str) -> bool:
    """Whether the event has the same subject, so that one person would do both."""
    first = who.english_person in (Person.I, Person.WE) and event.startswith(("I ", "we "))
    second = who.english_person == Person.YOU and event.startswith("you ")
    return first or second or who.english.split()[-1] in event


def _third_person_clause(random: Random, options: ClauseOptions) -> Clause:
    """A clause with a third-person subject, which Spanish does not drop."""
    clause = action(random, options)
    while not clause.subject.spanish or " and " in clause.subject.english:
        clause = action(random, options)
    return clause


def _alike(first: Clause, second: Clause) -> bool:
    """Whether two clauses have the same verb, or possibly the same subject."""
    one, two = first.subject.english.split(), second.subject.english.split()
    return one[-1] == two[-1] or first.predicate.verb is second.predicate.verb or two in (["he"], ["she"], ["they"])
