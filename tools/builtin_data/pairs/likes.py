"""Verbs whose Spanish subject is the English object: `gustar`, `encantar`, `doler`."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from builtin_data.pairs.adjectives import adjectives_for
from builtin_data.pairs.choices import chance, choose_definite, choose_plain_subject, pick
from builtin_data.pairs.clauses import ALSO, STILL, Adverb, Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.nouns import Noun, of_kinds
from builtin_data.pairs.phrases import NounPhrase, Phrase, join_words, noun_phrase, possessive_mark, with_preposition
from builtin_data.pairs.spanish_verbs import Person, conjugate
from builtin_data.pairs.subjects import DATIVES, PRONOUNS, YOU_ALL, I, Subject, subject
from builtin_data.pairs.verbs import TAKING_NOTHING, TAKING_THINGS, Verb, plain_verb

LIKE, LOVE, HURT = plain_verb("like", "gustar"), plain_verb("love", "encantar"), plain_verb("hurt", "doler")
TASTES = "fruit drink sweet dish animal language science game heard"
SEEN = "clothes work gift building furniture vehicle seen town"
LEISURE = frozenset({
    "eat", "drink", "cook", "read", "write", "watch", "listen to", "sing", "play", "study", "learn", "speak", "draw",
    "swim", "dance", "travel", "run", "walk", "rest", "take a walk", "take photos", "go shopping", "sleep", "wear",
    "watch television", "listen to the radio", "play cards", "ride a horse", "talk on the phone",
})  # fmt: skip
PASTIMES = tuple(
    word for word in TAKING_THINGS + TAKING_NOTHING if word.english in LEISURE and word.objects != "alcohol"
)


def experiencer(who: Subject) -> str:
    """The experiencer, named only where the pronoun is ambiguous: `a mi hermano`, but not `a mí`."""
    return with_preposition("a", who.stressed) if who.spanish else ""


def liking_clause(
    who: Subject, verb: Verb, thing: NounPhrase, negative: bool = False, adverb: Adverb | None = None
) -> Phrase:
    """`my brother likes apples`, `a mi hermano le gustan las manzanas`."""
    english = Clause(who, Predicate(verb, thing.english), Form.PRESENT, negative, adverb).statement().english
    form = conjugate(verb.infinitive, "present", Person.THEY if thing.plural else Person.HE)
    return Phrase(english, _spanish_order(who, form, thing.spanish, negative, adverb))


def liking_to_do_clause(who: Subject, verb: Verb, pastime: Predicate, negative: bool = False) -> Phrase:
    """`she likes to read`, `a ella le gusta leer`."""
    to_do = join_words("to", pastime.verb.english, pastime.english)
    english = Clause(who, Predicate(verb, to_do), Form.PRESENT, negative).statement().english
    form = conjugate(verb.infinitive, "present", Person.HE)
    return Phrase(
        english, _spanish_order(who, form, join_words(pastime.verb.infinitive, pastime.spanish), negative, None)
    )


def wishing_clause(who: Subject, pastime: Predicate) -> Phrase:
    """`we would like to eat bread`, `nos gustaría comer pan`."""
    english = join_words(who.english, "would like to", pastime.verb.english, pastime.english)
    spanish = join_words(
        experiencer(who), DATIVES[who.spanish_person], "gustaría", pastime.verb.infinitive, pastime.spanish
    )
    return Phrase(english, spanish)


def liking(random: Random) -> Phrase:
    """A person likes a thing, or likes to do something."""
    who, verb, negative = choose_plain_subject(random), pick(random, (LIKE, LIKE, LIKE, LOVE)), chance(random, 0.2)
    negative = negative and verb is LIKE
    if chance(random, 0.4):
        return liking_to_do_clause(who, verb, pastime(random), negative)
    adverb = pick(random, (ALSO, STILL)) if not negative and verb is LIKE and chance(random, 0.1) else None
    return liking_clause(who, verb, choose_liked(random), negative, adverb)


def wishing(random: Random) -> Phrase:
    """A person would like to do something."""
    who = choose_plain_subject(random)
    return wishing_clause(who, pastime(random))


def liking_asked(random: Random) -> Phrase:
    """`do you like coffee?`, `¿te gusta el café?`"""
    who, thing = choose_plain_subject(random), choose_liked(random)
    while who is I:
        who = choose_plain_subject(random)
    told = liking_clause(who, LIKE, thing)
    asked = Clause(who, Predicate(LIKE, thing.english), Form.PRESENT).question().english
    return Phrase(asked, f"¿{told.spanish}?")


def pain(random: Random) -> Phrase:
    """A person has a pain."""
    who, part = choose_plain_subject(random), pick(random, of_kinds("ache limb"))
    while who is YOU_ALL:
        who = choose_plain_subject(random)
    adverb = STILL if chance(random, 0.15) else None
    return pain_clause(
        who, part, "limb" in part.kinds and chance(random, 0.7), adverb is None and chance(random, 0.2), adverb
    )


def pain_clause(
    who: Subject, part: Noun, plural: bool = False, negative: bool = False, adverb: Adverb | None = None
) -> Phrase:
    """`my head hurts`, `me duele la cabeza`; `Ana's feet hurt`, `a Ana le duelen los pies`."""
    name = part.english_plural if plural else part.english
    whose = who.possessive if who in PRONOUNS else f"{who.english}{possessive_mark(who.english, who.plural)}"
    sore = replace(subject(noun_phrase("the", part, plural)), english=f"{whose} {name}")
    english = Clause(sore, Predicate(HURT), Form.PRESENT, negative, adverb).statement().english
    form = conjugate("doler", "present", sore.spanish_person)
    return Phrase(english, _spanish_order(who, form, sore.spanish, negative, adverb))


def choose_liked(random: Random) -> NounPhrase:
    """What is liked: a generic noun, which takes an article in Spanish, or a definite one."""
    if chance(random, 0.6):
        return generic(random, pick(random, of_kinds(TASTES)))
    return choose_definite(random, pick(random, of_kinds(SEEN)), described=0.3)


def generic(random: Random, thing: Noun) -> NounPhrase:
    """A generic noun: `apples`, `las manzanas`; `coffee`, `el café`."""
    plural = "mass" not in thing.kinds
    adjectives = () if thing.kinds & {"bare", "language", "science"} else adjectives_for(thing, "ser estar")
    quality = pick(random, adjectives) if adjectives and chance(random, 0.2) else None
    return replace(noun_phrase("the", thing, plural, quality), english=noun_phrase("", thing, plural, quality).english)


def pastime(random: Random) -> Predicate:
    """An activity that can be liked."""
    verb = pick(random, PASTIMES)
    if not verb.objects or ("alone" in verb.flags and chance(random, 0.3)):
        return verb_phrase(verb)
    thing = pick(random, of_kinds(verb.objects))
    adjectives = () if thing.kinds & {"bare", "language", "science"} else adjectives_for(thing, "ser")
    quality = pick(random, adjectives) if adjectives and chance(random, 0.25) else None
    uncounted = not thing.kinds.isdisjoint(("mass", "instrument"))
    return verb_phrase(verb, noun_phrase("the" if "instrument" in thing.kinds else "", thing, not uncounted, quality))


def _spanish_order(who: Subject, form: str, thing: str, negative: bool, adverb: Adverb | None) -> str:
    """The Spanish order: experiencer, adverb, pronoun, verb, and the thing."""
    return join_words(
        experiencer(who),
        adverb.spanish if adverb else "",
        "no" if negative else "",
        DATIVES[who.spanish_person],
        form,
        thing,
    )
