"""Clauses in which somebody does something: the verb, its object, its place, its company and its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random

from builtin_data.pairs.adjectives import Adjective, fitting
from builtin_data.pairs.choices import (
    POSITIVE_ONLY,
    chance,
    choose_amount,
    choose_crowd,
    choose_definite,
    choose_general,
    choose_lack,
    choose_one,
    choose_person,
    choose_possessive,
    choose_relative,
    choose_subject,
    choose_thing,
    forms_of,
    pick,
)
from builtin_data.pairs.circumstances import ADVERBS, COUNTRIES, PLACES, TIMES, at_the_hour
from builtin_data.pairs.clauses import ALSO, ANYMORE, STILL, YET, Adverb, Clause, Form, Predicate, doing
from builtin_data.pairs.nouns import Noun, noun, of_kinds
from builtin_data.pairs.person import Person
from builtin_data.pairs.phrases import NounPhrase, Phrase, after, noun_phrase
from builtin_data.pairs.subjects import OBJECT_PRONOUNS, YOU_ALL, Subject
from builtin_data.pairs.verbs import MOVING, PREPOSITIONS, TAKING_NOTHING, TAKING_PEOPLE, TAKING_THINGS, Verb

SOCIAL = frozenset({
    "eat", "drink", "cook", "watch", "sing", "play", "study", "walk", "run", "swim", "dance", "travel",
    "have breakfast", "have lunch", "have dinner", "take a walk", "play cards", "go shopping", "watch television",
    "work", "go", "return", "listen to the radio", "ride a horse",
})  # fmt: skip
GIVEN = frozenset({"buy", "cook", "prepare", "make a cake", "choose", "draw", "bring"})
BY_THE_CLOCK = frozenset({
    "get up", "wake up", "go to bed", "have breakfast", "have lunch", "have dinner", "arrive", "leave", "go", "return",
})  # fmt: skip
GIVEN_UP = SOCIAL | {"speak", "teach", "drive", "write", "read", "wear", "sell", "draw", "listen to"}
ALLY = {"I": "mí", "you": "ti", "he": "él", "she": "ella", "we": "nosotros", "they": "ellos"}
DAILY_GOALS = (("school", "la escuela"), ("work", "el trabajo"))  # one cannot `go to work`: it might be `going to` work
JOINED = {"with me": "conmigo", "with you": "contigo"}
WITH, FOR = Phrase("with", "con"), Phrase("for", "para")
EVERY_FORM = tuple(Form)


@dataclass(frozen=True, slots=True)
class Manner:
    """What a sentence pattern asks of its clause."""

    forms: tuple[Form, ...] = EVERY_FORM
    positive: bool = False  # never negated
    plain: bool = False  # no place, company, time or adverb
    timed: bool = True  # may say when


ANY = Manner()


def action(random: Random, manner: Manner = ANY) -> Clause:
    """Somebody doing anything."""
    roll = random.random()
    if roll < 0.5:
        return with_thing(random, manner)
    if roll < 0.66:
        return with_person(random, manner)
    return with_nothing(random, manner) if roll < 0.87 else moving(random, manner)


def with_thing(random: Random, manner: Manner = ANY) -> Clause:
    """Somebody doing something to a thing: `my sister is reading a book`."""
    verb = pick(random, allowing("things", manner.forms))
    who, negative, form = _who_and_how(random, verb, manner)
    if "alone" in verb.flags and chance(random, 0.12):
        return _furnished(random, Clause(who, doing(verb), form, negative), manner)
    thing = object_of(random, verb, who, form, negative)
    return _furnished(random, Clause(who, doing(verb, thing), form, negative), manner)


def with_person(random: Random, manner: Manner = ANY) -> Clause:
    """Somebody doing something to somebody: `she is helping him`, `they are visiting my aunt`."""
    verb = pick(random, allowing("people", manner.forms))
    who, negative, form = _who_and_how(random, verb, manner)
    if chance(random, 0.4):
        english, spanish, _, _ = choose_pronoun(random, who)
        return _furnished(random, Clause(who, Predicate(verb, english, pronoun=spanish), form, negative), manner)
    return _furnished(random, Clause(who, doing(verb, whom(random, verb, who)), form, negative), manner)


def with_nothing(random: Random, manner: Manner = ANY) -> Clause:
    """Somebody doing something: `the boy is sleeping`."""
    verb = pick(random, allowing("nothing", manner.forms))
    who, negative, form = _who_and_how(random, verb, manner, crowds=0.05)
    return _furnished(random, Clause(who, doing(verb), form, negative), manner)


def moving(random: Random, manner: Manner = ANY) -> Clause:
    """Somebody going somewhere: `we are going to the market`."""
    verb = pick(random, allowing("places", manner.forms))
    who, negative, form = _who_and_how(random, verb, manner)
    goal = destination(random, verb, far=form not in (Form.PRESENT, Form.USED))
    return _furnished(random, Clause(who, Predicate(verb, goal.english, goal.spanish), form, negative), manner)


def object_of(random: Random, verb: Verb, who: Subject, form: Form = Form.GOING, negative: bool = False) -> NounPhrase:
    """A thing the verb can be done to; habits are about things in general."""
    if verb.english == "have":
        return possession(random, negative)
    if form in (Form.PRESENT, Form.USED) and verb.flags.isdisjoint(("state", "sense")) and chance(random, 0.85):
        return choose_general(random, verb.objects)
    if negative:
        return _refused(random, verb)
    if "one" in verb.flags:
        return choose_one(random, verb.objects, who)
    if "bulk" in verb.flags:
        return choose_amount(random, verb.objects)
    return choose_thing(random, verb.objects, who)


def _refused(random: Random, verb: Verb) -> NounPhrase:
    """What somebody does not do it to: none of a kind, the kind, or one thing in particular."""
    roll = random.random()
    if roll < 0.35:
        return choose_lack(random, verb.objects)
    if roll < 0.65:
        return choose_general(random, verb.objects)
    return choose_definite(random, pick(random, of_kinds(verb.objects)), described=0.2)


def whom(random: Random, verb: Verb, who: Subject) -> NounPhrase:
    """A person the verb can be done to, other than its subject."""
    while True:
        person = _person_for(random, verb, who)
        if person.english.split()[-1] not in who.english:
            return person


def choose_pronoun(random: Random, who: Subject) -> tuple[str, str, str, Subject]:
    """An object pronoun of another person than the subject."""
    first, second = (Person.I, Person.WE), (Person.YOU,)
    while True:
        pronoun = pick(random, OBJECT_PRONOUNS)
        mine, theirs = who.english_person, pronoun[3].english_person
        if not any(mine in same and theirs in same for same in (first, second)):
            return pronoun


def destination(random: Random, verb: Verb, far: bool = True) -> Phrase:
    """Where somebody goes, or comes from; the preposition is the verb's."""
    preposition, roll = PREPOSITIONS[verb.english], random.random()
    if verb.english == "travel" or (far and roll < 0.2 and verb.english in ("go", "return", "arrive")):
        english, spanish = pick(random, COUNTRIES)
        return Phrase(f"{'in' if preposition == 'at' else preposition} {english}", f"a {spanish}")
    if roll < 0.35 and verb.english in ("go", "return", "arrive", "run", "walk"):
        return Phrase("home", "a casa")
    if roll < 0.5 and preposition in ("to", "from"):
        english, spanish = pick(random, DAILY_GOALS[: 1 + (verb.english != "go")])
        return Phrase(f"{preposition} {english}", after(verb.spanish_after, spanish))
    where = noun_phrase("the", pick(random, of_kinds("place" if preposition else "building shop")))
    return Phrase(f"{preposition} {where.english}".strip(), after(verb.spanish_after, where.spanish))


def timed_clause(random: Random, clause: Clause) -> Clause:
    """The clause with a time that suits its form."""
    times = TIMES[clause.form] if clause.predicate.verb.english != "sit down" else ()
    if clause.predicate.verb.english in BY_THE_CLOCK and clause.form in (
        Form.PRESENT,
        Form.PAST,
        Form.FUTURE,
        Form.GOING,
    ):
        times = times + at_the_hour()
    return clause.then(pick(random, times)) if times else clause


def company(random: Random, who: Subject, preposition: Phrase) -> Phrase:
    """Somebody else, with or for whom: `with my sister`, `for me`."""
    if chance(random, 0.4):
        english, _, _, other = choose_pronoun(random, who)
        together = f"{preposition.english} {english}"
        return Phrase(together, JOINED.get(together) or f"{preposition.spanish} {ALLY[other.english]}")
    person = whom(random, TAKING_PEOPLE[1], who)
    return Phrase(f"{preposition.english} {person.english}", f"{preposition.spanish} {person.spanish}")


TAKING = {"things": TAKING_THINGS, "people": TAKING_PEOPLE, "nothing": TAKING_NOTHING, "places": MOVING}


@cache
def allowing(what: str, forms: tuple[Form, ...]) -> tuple[Verb, ...]:
    """The verbs that take such an object and have at least one of the forms."""
    return tuple(verb for verb in TAKING[what] if forms_of(verb, forms))


def _who_and_how(random: Random, verb: Verb, manner: Manner, crowds: float = 0.0) -> tuple[Subject, bool, Form]:
    """The subject of a verb, whether it is negated, and its form."""
    negative = not manner.positive and "accident" not in verb.flags and chance(random, 0.2)
    form = pick(random, forms_of(verb, manner.forms))
    negative = negative and form not in POSITIVE_ONLY
    if not negative and form in (Form.CONTINUOUS, Form.PAST) and chance(random, crowds):
        return choose_crowd(random), negative, form
    return choose_subject(random, "adult" in verb.flags), negative, form


def _furnished(random: Random, clause: Clause, manner: Manner) -> Clause:
    """The clause with a place, company, a time or an adverb, seldom more than one of them."""
    verb, roll = clause.predicate.verb, random.random()
    if manner.plain:
        return unmistakable(random, clause, timed=False)
    if roll < 0.18 and verb.places:
        clause = clause.then(pick(random, PLACES[verb.places]))
    elif roll < 0.26 and verb.english in SOCIAL:
        clause = clause.then(company(random, clause.subject, WITH))
    elif roll < 0.3 and verb.english in GIVEN:
        clause = clause.then(company(random, clause.subject, FOR))
    elif roll > 0.85:
        return unmistakable(random, _with_adverb(random, clause), manner.timed)
    if manner.timed and "state" not in verb.flags and chance(random, 0.3):
        return timed_clause(random, clause)
    return unmistakable(random, clause, manner.timed)


def unmistakable(random: Random, clause: Clause, timed: bool) -> Clause:
    """`they read` is past only beside a word that says so; without one it becomes the future."""
    if clause.form != Form.PAST or clause.negative or not clause.predicate.verb.same_past:
        return clause
    return timed_clause(random, clause) if timed else replace(clause, form=Form.FUTURE, adverb=None)


def _with_adverb(random: Random, clause: Clause) -> Clause:
    """The clause with an adverb that suits its form: already done, not done yet."""
    given_up = clause.form == Form.PRESENT and clause.predicate.verb.english in GIVEN_UP
    adverbs: tuple[Adverb, ...]
    if clause.negative:
        adverbs = (YET,) if clause.form == Form.PERFECT else (ANYMORE,) if given_up else ()
    elif "state" in clause.predicate.verb.flags:
        adverbs = (ALSO, STILL)
    else:
        adverbs = ADVERBS.get(clause.form, ())
    if not adverbs or clause.subject.english in ("everyone", "nobody", "somebody"):
        return clause
    return replace(clause, adverb=pick(random, adverbs))


def _person_for(random: Random, verb: Verb, who: Subject) -> NounPhrase:
    kinds = verb.objects.split()
    possessive = choose_possessive(random, who)
    if possessive == "the":
        possessive = "my"
    if "pet" in kinds and chance(random, 0.15):
        return noun_phrase(possessive, pick(random, of_kinds("pet")))
    if "human" not in kinds or chance(random, 0.4):
        return choose_relative(random, possessive, "family" if "family" in kinds else "related")
    person = choose_person(random)
    while who is YOU_ALL and "your" in person.english:
        person = choose_person(random)
    return person


def possession(random: Random, negative: bool) -> NounPhrase:
    """What one has; what one has not loses its article: `no tengo perro`."""
    if negative:
        thing = pick(random, of_kinds("pet vehicle device money leisure"))
        lacking = noun_phrase("", thing)
        english = noun_phrase("" if "mass" in thing.kinds else "a", thing).english
        return replace(lacking, english=english)
    if chance(random, 0.3):
        sibling = pick(random, (noun("brother"), noun("sister"), noun("cousin"), noun("friend")))
        count = pick(random, ("a", "two", "three", "four", "many"))
        return noun_phrase(count, sibling, plural=count != "a")
    thing = pick(random, of_kinds("pet vehicle device small_thing owned_idea money leisure"))
    if "mass" in thing.kinds:
        return noun_phrase(pick(random, ("", "a lot of")), thing)
    count = pick(random, ("a", "a", "a", "two", "three", "many", "several", "the"))
    if count == "the" and "small_thing" not in thing.kinds:
        count = "a"
    return noun_phrase(count, thing, plural=count not in ("a", "the"), adjective=_described(random, thing))


def _described(random: Random, thing: Noun) -> Adjective | None:
    adjectives = fitting(thing, "ser noun")
    return pick(random, adjectives) if adjectives and chance(random, 0.3) else None
