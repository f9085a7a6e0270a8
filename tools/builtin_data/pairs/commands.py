"""Telling a friend what to do, saying what one wants of others, and proposing to do it together."""

from __future__ import annotations

from random import Random

from builtin_data.pairs.actions import object_of, whom
from builtin_data.pairs.choices import chance, choose_plain_subject, pick
from builtin_data.pairs.circumstances import PLACES
from builtin_data.pairs.clauses import Clause, Form, Predicate, doing
from builtin_data.pairs.person import Person
from builtin_data.pairs.phrases import Phrase, words
from builtin_data.pairs.spanish_verbs import command, conjugate
from builtin_data.pairs.subjects import OBJECT_PRONOUNS, WE, YOU, YOU_ALL, I, Subject
from builtin_data.pairs.verbs import TAKING_NOTHING, TAKING_PEOPLE, TAKING_THINGS, plain_verb

UNCOMMANDED = frozenset({"state", "accident", "sense", "event", "plain"})
ODD_COMMANDS = frozenset({"cry", "wear", "travel", "build", "drink", "love", "take care of"})
COMMANDED = tuple(
    word
    for word in TAKING_THINGS + TAKING_PEOPLE + TAKING_NOTHING
    if not word.flags & UNCOMMANDED and not word.reflexive and word.english not in ODD_COMMANDS
)
WANT = plain_verb("want", "querer")
WISHED_PRONOUNS = {who.english: english for english, _, _, who in OBJECT_PRONOUNS}


def order(random: Random) -> Phrase:
    """`close the window, please`, `no abras la puerta`."""
    negative = chance(random, 0.25)
    predicate = task(random, YOU, negative)
    please = Phrase(", please", ", por favor") if chance(random, 0.35) else Phrase("", "")
    told = commanded(predicate, negative)
    return Phrase(told.english + please.english, told.spanish + please.spanish)


def commanded(predicate: Predicate, negative: bool = False) -> Phrase:
    """A command to one friend; not to do something takes the subjunctive."""
    infinitive = predicate.verb.infinitive
    form = f"no {conjugate(infinitive, 'subjunctive', Person.YOU)}" if negative else command(infinitive)
    english = words("do not" if negative else "", predicate.verb.english, predicate.english)
    return Phrase(english, words(form, predicate.spanish))


def proposal(random: Random) -> Phrase:
    """`let's eat`, `vamos a comer`."""
    predicate = task(random, WE)
    english = words("let's", predicate.verb.english, predicate.english)
    return Phrase(english, words("vamos a", predicate.verb.infinitive, predicate.spanish))


def want_of_others(random: Random) -> Phrase:
    """`I want my brother to read the book`: the subjunctive, in a clause of its own."""
    who, other = choose_plain_subject(random), _another(random)
    while who.english_person == other.english_person or {who.english_person, other.english_person} <= {
        Person.I,
        Person.WE,
    }:
        who, other = choose_plain_subject(random), _another(random)
    return wanted(who, other, task(random, other), chance(random, 0.15), who is not I and chance(random, 0.2))


def wanted(who: Subject, other: Subject, predicate: Predicate, negative: bool = False, asked: bool = False) -> Phrase:
    """One person wanting another to do something."""
    doer = "yo" if other is I else other.spanish
    inner = words(
        "que", doer, conjugate(predicate.verb.infinitive, "subjunctive", other.spanish_person), predicate.spanish
    )
    to_do = words(WISHED_PRONOUNS.get(other.english, other.english), "to", predicate.verb.english, predicate.english)
    clause = Clause(who, Predicate(WANT, to_do, inner), Form.PRESENT, negative)
    return clause.question() if asked else clause.statement()


def task(random: Random, who: Subject, negative: bool = False) -> Predicate:
    """Something that can be asked of somebody."""
    verb = pick(random, COMMANDED)
    if verb.personal:
        return doing(verb, whom(random, verb, who))
    predicate = doing(verb, object_of(random, verb, who, negative=negative)) if verb.objects else doing(verb)
    if verb.places and chance(random, 0.2):
        predicate = predicate.then(pick(random, PLACES[verb.places]))
    return predicate


def _another(random: Random) -> Subject:
    """Somebody of whom things are wanted."""
    other = choose_plain_subject(random)
    while other is YOU_ALL:
        other = choose_plain_subject(random)
    return other
