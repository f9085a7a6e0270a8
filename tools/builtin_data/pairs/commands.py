"""Commands, proposals, and wishes about what others do."""

from __future__ import annotations

from random import Random

from builtin_data.pairs.actions import choose_object, choose_person_object
from builtin_data.pairs.choices import chance, choose_plain_subject, pick
from builtin_data.pairs.circumstances import PLACES
from builtin_data.pairs.clauses import Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.phrases import Phrase, join_words
from builtin_data.pairs.spanish_verbs import Person, command, conjugate
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
    predicate = choose_request(random, YOU, negative)
    please = Phrase(", please", ", por favor") if chance(random, 0.35) else Phrase("", "")
    told = imperative(predicate, negative)
    return Phrase(told.english + please.english, told.spanish + please.spanish)


def imperative(predicate: Predicate, negative: bool = False) -> Phrase:
    """An informal command; a negative one takes the subjunctive."""
    infinitive = predicate.verb.infinitive
    form = f"no {conjugate(infinitive, 'subjunctive', Person.YOU)}" if negative else command(infinitive)
    english = join_words("do not" if negative else "", predicate.verb.english, predicate.english)
    return Phrase(english, join_words(form, predicate.spanish))


def proposal(random: Random) -> Phrase:
    """`let's eat`, `vamos a comer`."""
    predicate = choose_request(random, WE)
    english = join_words("let's", predicate.verb.english, predicate.english)
    return Phrase(english, join_words("vamos a", predicate.verb.infinitive, predicate.spanish))


def wanting_others(random: Random) -> Phrase:
    """`I want my brother to read the book`: the subjunctive, in a clause of its own."""
    who, other = choose_plain_subject(random), _other_person(random)
    while who.english_person == other.english_person or {who.english_person, other.english_person} <= {
        Person.I,
        Person.WE,
    }:
        who, other = choose_plain_subject(random), _other_person(random)
    return wanting_clause(
        who, other, choose_request(random, other), chance(random, 0.15), who is not I and chance(random, 0.2)
    )


def wanting_clause(
    who: Subject, other: Subject, predicate: Predicate, negative: bool = False, asked: bool = False
) -> Phrase:
    """One person wants another to do something."""
    doer = "yo" if other is I else other.spanish
    inner = join_words(
        "que", doer, conjugate(predicate.verb.infinitive, "subjunctive", other.spanish_person), predicate.spanish
    )
    to_do = join_words(
        WISHED_PRONOUNS.get(other.english, other.english), "to", predicate.verb.english, predicate.english
    )
    clause = Clause(who, Predicate(WANT, to_do, inner), Form.PRESENT, negative)
    return clause.question() if asked else clause.statement()


def choose_request(random: Random, who: Subject, negative: bool = False) -> Predicate:
    """An action that can be requested."""
    verb = pick(random, COMMANDED)
    if verb.personal:
        return verb_phrase(verb, choose_person_object(random, verb, who))
    predicate = (
        verb_phrase(verb, choose_object(random, verb, who, negative=negative)) if verb.objects else verb_phrase(verb)
    )
    if verb.places and chance(random, 0.2):
        predicate = predicate.followed_by(pick(random, PLACES[verb.places]))
    return predicate


def _other_person(random: Random) -> Subject:
    """The person from whom something is wanted."""
    other = choose_plain_subject(random)
    while other is YOU_ALL:
        other = choose_plain_subject(random)
    return other
