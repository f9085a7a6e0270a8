"""Relative clauses: the book that I am reading, the woman who sells fruit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from builtin_data.pairs.actions import ClauseOptions, action
from builtin_data.pairs.adjectives import adjectives_for
from builtin_data.pairs.choices import chance, choose_plain_subject, pick
from builtin_data.pairs.clauses import Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.nouns import Noun, noun, of_kinds
from builtin_data.pairs.phrases import NounPhrase, Phrase, noun_phrase
from builtin_data.pairs.states import SER, be_predicate
from builtin_data.pairs.subjects import Subject, subject
from builtin_data.pairs.verbs import TAKING_THINGS, Verb

LINKING = ("buy", "read", "want", "wear", "sell", "write", "watch", "choose", "have", "find", "need", "send", "receive")
LINKING_VERBS = tuple(word for word in TAKING_THINGS if word.english in LINKING)
FORMS = (Form.PAST, Form.PAST, Form.PERFECT, Form.GOING, Form.WANT)
SHOWN = ClauseOptions((Form.CONTINUOUS, Form.PAST), positive=True, plain=True)
KIN = {
    "man": "uncle father cousin neighbour brother", "woman": "aunt mother sister grandmother",
    "boy": "brother cousin neighbour", "girl": "sister",
}  # fmt: skip


def thing_that(random: Random) -> Phrase:
    """`the book that I am reading is interesting`, `el libro que estoy leyendo es interesante`."""
    word, thing = _linked_thing(random)
    form = pick(random, FORMS if not word.same_past else (Form.GOING, Form.CONTINUOUS, Form.CONTINUOUS))
    form = Form.PRESENT if "state" in word.flags else Form.CONTINUOUS if "plain" in word.flags else form
    head = noun_phrase("the", thing, "mass" not in thing.kinds and chance(random, 0.4))
    doer = choose_plain_subject(random)
    while doer.english.startswith(("that ", "those ")):
        doer = choose_plain_subject(random)
    whole = subject(object_relative(head, Clause(doer, verb_phrase(word), form)))
    quality = be_predicate(whole, pick(random, adjectives_for(thing, "ser")))
    return Clause(whole, quality, Form.PRESENT, chance(random, 0.15)).statement()


def object_relative(head: NounPhrase, clause: Clause) -> NounPhrase:
    """A noun with a relative clause in which it is the object."""
    told = clause.statement()
    return replace(head, english=f"{head.english} that {told.english}", spanish=f"{head.spanish} que {told.spanish}")


def subject_relative(head: NounPhrase, predicate: Predicate, form: Form) -> NounPhrase:
    """A person with a relative clause in which it is the subject."""
    doer: Subject = replace(subject(head), english="who", spanish="que")
    told = Clause(doer, predicate, form).statement()
    return replace(head, english=f"{head.english} {told.english}", spanish=f"{head.spanish} {told.spanish}")


def person_who(random: Random) -> Phrase:
    """`the woman who is reading a book is my aunt`, `la mujer que está leyendo un libro es mi tía`."""
    name = pick(random, tuple(KIN))
    relation = noun_phrase(pick(random, ("my", "your", "our", "his", "her")), noun(pick(random, KIN[name].split())))
    clause = action(random, SHOWN)
    while relation.english.split()[-1] in clause.predicate.english or "adult" in clause.predicate.verb.flags:
        clause = action(random, SHOWN)
    whole = subject_relative(
        noun_phrase(pick(random, ("the", "the", "that")), noun(name)), clause.predicate, clause.form
    )
    return Clause(subject(whole), Predicate(SER, relation.english, relation.spanish), Form.PRESENT).statement()


def _linked_thing(random: Random) -> tuple[Verb, Noun]:
    while True:
        word = pick(random, LINKING_VERBS)
        thing = pick(random, of_kinds(word.objects))
        if adjectives_for(thing, "ser") and not thing.kinds & {"bare", "language", "science"}:
            return word, thing
