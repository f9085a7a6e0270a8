"""Yes-or-no questions and question words; in Spanish `¿` opens a question and the subject follows the verb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from builtin_data.pairs.actions import SOCIAL, ClauseOptions, action, timed_clause
from builtin_data.pairs.choices import chance, choose_definite, choose_plain_subject, forms_of, pick
from builtin_data.pairs.circumstances import PLACES
from builtin_data.pairs.clauses import ALMOST_ALWAYS, ALMOST_NEVER, ALSO, NEVER, Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.nouns import of_kinds
from builtin_data.pairs.phrases import Phrase, noun_phrase
from builtin_data.pairs.spots import LIVE, whereabouts
from builtin_data.pairs.states import ESTAR, SER, TENER, age, feeling, mood, origin, quality_of_person, quality_of_thing
from builtin_data.pairs.subjects import WHO, I, Subject, subject
from builtin_data.pairs.transfers import giving
from builtin_data.pairs.verbs import MOVING, TAKING_NOTHING, TAKING_PEOPLE, TAKING_THINGS, Verb
from builtin_data.pairs.world import COST, scheduled

WHAT, WHERE, WHEN = Phrase("what", "qué"), Phrase("where", "dónde"), Phrase("when", "cuándo")
WHY, WHOM, HOW = Phrase("why", "por qué"), Phrase("who", "a quién"), Phrase("how", "cómo")

# Verbs that can be asked about with `what`: others take one kind of object only, or have two translations.
NOT_ASKED = frozenset({"speak", "play", "know", "tell", "visit", "drive", "pay", "lose", "forget", "break", "taste"})
ASKED_WHAT = tuple(word for word in TAKING_THINGS if word.english not in NOT_ASKED)
ASKED_WHERE = tuple(
    word for word in TAKING_THINGS + TAKING_NOTHING if word.places and word.english not in ("teach", "learn")
)
ASKED_WITH_WHOM = tuple(word for word in TAKING_NOTHING if word.english in SOCIAL and "adult" not in word.flags)
COUNTABLE_VERBS = tuple(
    word for word in TAKING_THINGS if word.english in ("eat", "buy", "read", "need", "write", "sell", "see", "sing")
)
COUNTED_FORMS = (Form.PAST, Form.PAST, Form.PERFECT, Form.GOING, Form.HAVE_TO, Form.WANT, Form.FUTURE)
DATED = ClauseOptions((Form.PAST, Form.GOING, Form.FUTURE, Form.WANT, Form.HAVE_TO), positive=True, plain=True)
ASKED_FORMS = tuple(form for form in Form if form not in (Form.JUST, Form.USED))
ONES_OWN_FORMS = frozenset({Form.CAN, Form.SHOULD, Form.MUST, Form.HAVE_TO})  # of questions about oneself

STATES: tuple[Callable[[Random], Clause], ...] = (
    feeling,
    quality_of_person,
    quality_of_thing,
    origin,
    age,
    whereabouts,
)


def yes_or_no(random: Random) -> Phrase:
    """`is your sister reading a book?`, `¿tu hermana está leyendo un libro?`"""
    return _askable(random, action).question()


def yes_or_no_state(random: Random) -> Phrase:
    """`are you hungry?`, `¿tienes hambre?`"""
    return _askable(random, pick(random, STATES)).question()


def yes_or_no_giving(random: Random) -> Phrase:
    """`did you send her the letter?`, `¿le enviaste la carta?`"""
    return _askable(random, giving).question()


def what(random: Random) -> Phrase:
    """`what is the girl eating?`, `¿qué está comiendo la niña?`"""
    return _with_circumstance(random, _clause(random, pick(random, ASKED_WHAT), bare=True)).wh_question(WHAT)


def who_does(random: Random) -> Phrase:
    """`who is cooking?`, `¿quién está cocinando?`"""
    clause = action(random, ClauseOptions(positive=True))
    told = replace(clause, subject=WHO, adverb=None).statement()
    return Phrase(f"{told.english}?", f"¿{told.spanish}?")


def whom(random: Random) -> Phrase:
    """`who are you visiting?`, `¿a quién estás visitando?`"""
    return _with_circumstance(random, _clause(random, pick(random, TAKING_PEOPLE), bare=True)).wh_question(WHOM)


def where(random: Random) -> Phrase:
    """`where does your brother work?`, `¿dónde trabaja tu hermano?`"""
    verb = pick(random, ASKED_WHERE)
    clause = _clause(random, verb)
    return (timed_clause(random, clause) if chance(random, 0.2) else clause).wh_question(WHERE)


def where_to(random: Random) -> Phrase:
    """`where are you going?`, `¿adónde vas?`; `where are they coming from?`, `¿de dónde vienen ellos?`"""
    verb = pick(random, (MOVING[0], MOVING[0], MOVING[3], MOVING[6]))
    form, who = pick(random, forms_of(verb, ASKED_FORMS)), _who(random)
    if verb.spanish_after == "de":
        return Clause(who, Predicate(verb, "from"), form).wh_question(Phrase("where", "de dónde"))
    clause = Clause(who, Predicate(verb), form)
    return (timed_clause(random, clause) if chance(random, 0.3) else clause).wh_question(Phrase("where", "adónde"))


def when(random: Random) -> Phrase:
    """`when did they arrive?`, `¿cuándo llegaron ellos?`"""
    return _askable(random, lambda source: action(source, DATED)).wh_question(WHEN)


def why(random: Random) -> Phrase:
    """`why is the girl crying?`, `¿por qué está llorando la niña?`"""
    source = pick(random, (action, action, mood, feeling))
    clause = _askable(random, source)
    return clause.wh_question(WHY, subject_first=bool(clause.predicate.spanish or clause.adverb))


def with_whom(random: Random) -> Phrase:
    """`who are you having dinner with?`, `¿con quién estás cenando?`"""
    verb = pick(random, ASKED_WITH_WHOM)
    form = pick(random, forms_of(verb, ASKED_FORMS))
    return Clause(_who(random, form), verb_phrase(verb).followed_by(Phrase("with", "")), form).wh_question(
        Phrase("who", "con quién")
    )


def which(random: Random) -> Phrase:
    """`which book are you reading?`, `¿qué libro estás leyendo?`"""
    verb = pick(random, ASKED_WHAT)
    thing = pick(random, of_kinds(verb.objects))
    while thing.kinds & {"mass", "only", "human", "pair"}:
        verb = pick(random, ASKED_WHAT)
        thing = pick(random, of_kinds(verb.objects))
    return _clause(random, verb, bare=True).wh_question(noun_phrase("which", thing, chance(random, 0.3)))


def how_many(random: Random) -> Phrase:
    """`how many apples did you buy?`, `¿cuántas manzanas compraste?`"""
    verb = pick(random, COUNTABLE_VERBS)
    thing, form = pick(random, of_kinds(verb.objects)), pick(random, COUNTED_FORMS)
    while thing.kinds & {"bare", "pair", "only"}:
        thing = pick(random, of_kinds(verb.objects))
    mass = "mass" in thing.kinds
    form = Form.PRESENT if "state" in verb.flags else form
    counted = noun_phrase("how much" if mass else "how many", thing, not mass)
    return Clause(_who(random, form), verb_phrase(verb), form).wh_question(counted)


def how_many_owned(random: Random) -> Phrase:
    """`how many brothers does she have?`, `¿cuántos hermanos tiene ella?`"""
    have = next(word for word in TAKING_THINGS if word.english == "have")
    thing = pick(random, of_kinds("pet vehicle sibling small_thing several"))
    return Clause(_who(random), verb_phrase(have), Form.PRESENT).wh_question(
        noun_phrase("how many", thing, plural=True)
    )


def about_person(random: Random) -> Phrase:
    """A question about the state, place, origin, age or home of a person."""
    who = _who(random)
    past = Form.PAST if chance(random, 0.3) else Form.PRESENT
    return pick(
        random,
        (
            Clause(who, Predicate(ESTAR), Form.PRESENT).wh_question(HOW),
            Clause(who, Predicate(ESTAR), past).wh_question(WHERE),
            Clause(who, Predicate(LIVE), pick(random, (Form.PRESENT, Form.WANT))).wh_question(WHERE),
            Clause(who, Predicate(SER, "from"), Form.PRESENT).wh_question(Phrase("where", "de dónde")),
            Clause(who, Predicate(TENER), Form.PRESENT).wh_question(Phrase("how old", "cuántos años")),
        ),
    )


def about_thing(random: Random) -> Phrase:
    """A question about the place, colour or price of a thing."""
    coloured = subject(choose_definite(random, pick(random, of_kinds("colourful"))))
    thing = subject(
        choose_definite(random, pick(random, of_kinds("lost small_thing clothes place transport readable")))
    )
    ware = subject(choose_definite(random, pick(random, of_kinds("clothes device vehicle fruit readable furniture"))))
    return pick(
        random,
        (
            Clause(thing, Predicate(ESTAR), Form.PRESENT).wh_question(WHERE),
            Clause(coloured, Predicate(SER), Form.PRESENT).wh_question(Phrase("what colour", "de qué color")),
            Clause(ware, Predicate(COST), Form.PRESENT).wh_question(Phrase("how much", "cuánto")),
        ),
    )


def at_what_time(random: Random) -> Phrase:
    """`what time does the train leave?`, `¿a qué hora sale el tren?`"""
    what_time = Phrase("what time", "a qué hora")
    form = pick(random, (Form.PRESENT, Form.PRESENT, Form.PAST, Form.GOING))
    if chance(random, 0.5):
        thing, verb = scheduled(random)
        return Clause(thing, Predicate(verb), form).wh_question(what_time)
    verb = pick(random, tuple(word for word in TAKING_NOTHING if word.english in DAILY))
    return Clause(_who(random), verb_phrase(verb), form).wh_question(what_time)


DAILY = frozenset({"get up", "wake up", "go to bed", "have breakfast", "have lunch", "have dinner"})


def _askable(random: Random, source: Callable[[Random], Clause]) -> Clause:
    """A clause that makes a sensible question: not about what oneself is doing."""
    while True:
        clause = source(random)
        vague = clause.subject.english.startswith(("a ", "an ", "some ", "somebody", "nobody", "two ", "three "))
        odd = vague or clause.adverb in (NEVER, ALMOST_NEVER, ALMOST_ALWAYS, ALSO)
        if not odd and (clause.subject is not I or clause.form in ONES_OWN_FORMS) and clause.form in ASKED_FORMS:
            return clause


def _who(random: Random, form: Form = Form.PRESENT) -> Subject:
    who = choose_plain_subject(random)
    while who is I and form not in ONES_OWN_FORMS:
        who = choose_plain_subject(random)
    return who


def _clause(random: Random, verb: Verb, bare: bool = False) -> Clause:
    """A clause without an object, which the question asks for."""
    form = pick(random, forms_of(verb, ASKED_FORMS))
    who = _who(random, form)
    if bare or not verb.objects or "alone" in verb.flags:
        return Clause(who, verb_phrase(verb), form)
    thing = choose_definite(random, pick(random, of_kinds(verb.objects)))
    return Clause(who, verb_phrase(verb, thing), form)


def _with_circumstance(random: Random, clause: Clause) -> Clause:
    places, roll = clause.predicate.verb.places, random.random()
    if roll < 0.2 and places:
        return clause.followed_by(pick(random, PLACES[places]))
    return timed_clause(random, clause) if roll > 0.75 and "state" not in clause.predicate.verb.flags else clause
