"""Clauses with an action verb: its subject, object, place, companion and time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random

from builtin_data.pairs.adjectives import Adjective, adjectives_for
from builtin_data.pairs.choices import (
    POSITIVE_ONLY,
    chance,
    choose_absent,
    choose_amount,
    choose_definite,
    choose_general,
    choose_indefinite,
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
from builtin_data.pairs.clauses import ALSO, ANYMORE, STILL, YET, Adverb, Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.nouns import Noun, noun, of_kinds
from builtin_data.pairs.phrases import NounPhrase, Phrase, noun_phrase, with_preposition
from builtin_data.pairs.spanish_verbs import Person
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
DAILY_GOALS = (("school", "la escuela"), ("work", "el trabajo"))  # `going to work` would be ambiguous
JOINED = {"with me": "conmigo", "with you": "contigo"}
WITH, FOR = Phrase("with", "con"), Phrase("for", "para")
EVERY_FORM = tuple(Form)


@dataclass(frozen=True, slots=True)
class ClauseOptions:
    """Requirements of a sentence pattern on its clause."""

    forms: tuple[Form, ...] = EVERY_FORM
    positive: bool = False  # never negated
    plain: bool = False  # no place, companion, time or adverb
    timed: bool = True  # may have a time


ANY = ClauseOptions()


def action(random: Random, options: ClauseOptions = ANY) -> Clause:
    """A clause with any action verb."""
    roll = random.random()
    if roll < 0.5:
        return with_object(random, options)
    if roll < 0.66:
        return with_person(random, options)
    return without_object(random, options) if roll < 0.87 else with_destination(random, options)


def with_object(random: Random, options: ClauseOptions = ANY) -> Clause:
    """A verb with a thing as its object: `my sister is reading a book`."""
    verb = pick(random, verbs_taking("things", options.forms))
    who, negative, form = _subject_and_form(random, verb, options)
    if "alone" in verb.flags and chance(random, 0.12):
        return _with_circumstance(random, Clause(who, verb_phrase(verb), form, negative), options)
    thing = choose_object(random, verb, who, form, negative)
    return _with_circumstance(random, Clause(who, verb_phrase(verb, thing), form, negative), options)


def with_person(random: Random, options: ClauseOptions = ANY) -> Clause:
    """A verb with a person as its object: `she is helping him`, `they are visiting my aunt`."""
    verb = pick(random, verbs_taking("people", options.forms))
    who, negative, form = _subject_and_form(random, verb, options)
    if chance(random, 0.4):
        english, spanish, _, _ = choose_pronoun(random, who)
        return _with_circumstance(
            random, Clause(who, Predicate(verb, english, pronoun=spanish), form, negative), options
        )
    return _with_circumstance(
        random, Clause(who, verb_phrase(verb, choose_person_object(random, verb, who)), form, negative), options
    )


def without_object(random: Random, options: ClauseOptions = ANY) -> Clause:
    """A verb without an object: `the boy is sleeping`."""
    verb = pick(random, verbs_taking("nothing", options.forms))
    who, negative, form = _subject_and_form(random, verb, options, crowds=0.05)
    return _with_circumstance(random, Clause(who, verb_phrase(verb), form, negative), options)


def with_destination(random: Random, options: ClauseOptions = ANY) -> Clause:
    """A verb of motion with its destination: `we are going to the market`."""
    verb = pick(random, verbs_taking("places", options.forms))
    who, negative, form = _subject_and_form(random, verb, options)
    goal = choose_destination(random, verb, far=form not in (Form.PRESENT, Form.USED))
    return _with_circumstance(random, Clause(who, Predicate(verb, goal.english, goal.spanish), form, negative), options)


def choose_object(
    random: Random, verb: Verb, who: Subject, form: Form = Form.GOING, negative: bool = False
) -> NounPhrase:
    """An object that the verb can take; of habits a generic one."""
    if verb.english == "have":
        return possession(random, negative)
    if form in (Form.PRESENT, Form.USED) and verb.flags.isdisjoint(("state", "sense")) and chance(random, 0.85):
        return choose_general(random, verb.objects)
    if negative:
        return _negated_object(random, verb)
    if "one" in verb.flags:
        return choose_one(random, verb.objects, who)
    if "bulk" in verb.flags:
        return choose_amount(random, verb.objects)
    return choose_thing(random, verb.objects, who)


def _negated_object(random: Random, verb: Verb) -> NounPhrase:
    """The object of a negated verb: `any books`, a generic noun, or a definite one."""
    roll = random.random()
    if roll < 0.35:
        return choose_absent(random, verb.objects)
    if roll < 0.65:
        return choose_general(random, verb.objects)
    return choose_definite(random, pick(random, of_kinds(verb.objects)), described=0.2)


def choose_person_object(random: Random, verb: Verb, who: Subject) -> NounPhrase:
    """A person as the object, other than the subject."""
    while True:
        person = _person_for(random, verb, who)
        if person.english.split()[-1] not in who.english:
            return person


def choose_pronoun(random: Random, who: Subject) -> tuple[str, str, str, Subject]:
    """An object pronoun that does not refer to the subject."""
    first, second = (Person.I, Person.WE), (Person.YOU,)
    while True:
        pronoun = pick(random, OBJECT_PRONOUNS)
        mine, theirs = who.english_person, pronoun[3].english_person
        if not any(mine in same and theirs in same for same in (first, second)):
            return pronoun


def choose_destination(random: Random, verb: Verb, far: bool = True) -> Phrase:
    """A destination or origin, with the preposition of the verb."""
    preposition, roll = PREPOSITIONS[verb.english], random.random()
    if verb.english == "travel" or (far and roll < 0.2 and verb.english in ("go", "return", "arrive")):
        english, spanish = pick(random, COUNTRIES)
        return Phrase(f"{'in' if preposition == 'at' else preposition} {english}", f"a {spanish}")
    if roll < 0.35 and verb.english in ("go", "return", "arrive", "run", "walk"):
        return Phrase("home", "a casa")
    if roll < 0.5 and preposition in ("to", "from"):
        english, spanish = pick(random, DAILY_GOALS[: 1 + (verb.english != "go")])
        return Phrase(f"{preposition} {english}", with_preposition(verb.spanish_after, spanish))
    where = noun_phrase("the", pick(random, of_kinds("place" if preposition else "building shop")))
    return Phrase(f"{preposition} {where.english}".strip(), with_preposition(verb.spanish_after, where.spanish))


def timed_clause(random: Random, clause: Clause) -> Clause:
    """The clause with a time that fits its tense."""
    times = TIMES[clause.form] if clause.predicate.verb.english != "sit down" else ()
    if clause.predicate.verb.english in BY_THE_CLOCK and clause.form in (
        Form.PRESENT,
        Form.PAST,
        Form.FUTURE,
        Form.GOING,
    ):
        times = times + at_the_hour()
    return clause.followed_by(pick(random, times)) if times else clause


def choose_companion(random: Random, who: Subject, preposition: Phrase) -> Phrase:
    """A companion or beneficiary: `with my sister`, `for me`."""
    if chance(random, 0.4):
        english, _, _, other = choose_pronoun(random, who)
        together = f"{preposition.english} {english}"
        return Phrase(together, JOINED.get(together) or f"{preposition.spanish} {ALLY[other.english]}")
    person = choose_person_object(random, TAKING_PEOPLE[1], who)
    return Phrase(f"{preposition.english} {person.english}", f"{preposition.spanish} {person.spanish}")


TAKING = {"things": TAKING_THINGS, "people": TAKING_PEOPLE, "nothing": TAKING_NOTHING, "places": MOVING}


@cache
def verbs_taking(what: str, forms: tuple[Form, ...]) -> tuple[Verb, ...]:
    """The verbs that take such an object and allow at least one of the forms."""
    return tuple(verb for verb in TAKING[what] if forms_of(verb, forms))


def _subject_and_form(
    random: Random, verb: Verb, options: ClauseOptions, crowds: float = 0.0
) -> tuple[Subject, bool, Form]:
    """A subject for the verb, whether it is negated, and its form."""
    negative = not options.positive and "accident" not in verb.flags and chance(random, 0.2)
    form = pick(random, forms_of(verb, options.forms))
    negative = negative and form not in POSITIVE_ONLY
    if not negative and form in (Form.CONTINUOUS, Form.PAST) and chance(random, crowds):
        return choose_indefinite(random), negative, form
    return choose_subject(random, "adult" in verb.flags), negative, form


def _with_circumstance(random: Random, clause: Clause, options: ClauseOptions) -> Clause:
    """The clause with a place, companion, time or adverb, rarely more than one of them."""
    verb, roll = clause.predicate.verb, random.random()
    if options.plain:
        return disambiguate_past(random, clause, timed=False)
    if roll < 0.18 and verb.places:
        clause = clause.followed_by(pick(random, PLACES[verb.places]))
    elif roll < 0.26 and verb.english in SOCIAL:
        clause = clause.followed_by(choose_companion(random, clause.subject, WITH))
    elif roll < 0.3 and verb.english in GIVEN:
        clause = clause.followed_by(choose_companion(random, clause.subject, FOR))
    elif roll > 0.85:
        return disambiguate_past(random, _with_adverb(random, clause), options.timed)
    if options.timed and "state" not in verb.flags and chance(random, 0.3):
        return timed_clause(random, clause)
    return disambiguate_past(random, clause, options.timed)


def disambiguate_past(random: Random, clause: Clause, timed: bool) -> Clause:
    """`they read` is only past beside a time that makes it so; otherwise it becomes the future."""
    if clause.form != Form.PAST or clause.negative or not clause.predicate.verb.same_past:
        return clause
    return timed_clause(random, clause) if timed else replace(clause, form=Form.FUTURE, adverb=None)


def _with_adverb(random: Random, clause: Clause) -> Clause:
    """The clause with an adverb that fits its form: `already`, `yet`."""
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
    """A clause with `have`; a negated object loses its article: `no tengo perro`."""
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
    adjectives = adjectives_for(thing, "ser noun")
    return pick(random, adjectives) if adjectives and chance(random, 0.3) else None
