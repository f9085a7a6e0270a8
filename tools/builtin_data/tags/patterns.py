"""Patterns of tagged sentences; most show a word in one of its several roles."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from builtin_data.tags import words as lists
from builtin_data.tags.grammar import (
    Words,
    choose_action,
    clause,
    finite,
    form_of_be,
    noun_phrase,
    person,
    pick,
    place,
    tagged,
    with_object,
)

Pattern = Callable[[Random], Words]
THINGS = ("watch", "light", "can", "saw", "plant", "duck", "boat", "book", "box", "chair", "table", "well")


def statement(random: Random) -> Words:
    """`They can fish in the river`."""
    return clause(random, *person(random))


def noun_act(random: Random) -> Words:
    """A verb as a noun: `Anna went for a long walk`."""
    who, _ = person(random)
    quality = f"{pick(random, ('long', 'short', 'quiet', 'last'))}/ADJ" if random.random() < 0.5 else ""
    start = pick(random, ("went/VERB for/ADP a/DET", "had/VERB a/DET", "wanted/VERB a/DET"))
    act = pick(random, lists.ACTS)
    return [*who, *tagged(f"{start} {quality}"), (act, "NOUN"), *(place(random, act) if random.random() < 0.4 else [])]


def copula_person(random: Random) -> Words:
    """`The old man is well`."""
    return _described(random, *person(random), lists.FEELING)


def copula_thing(random: Random) -> Words:
    """`The saw is old`, `That is right`."""
    if random.random() < 0.2:
        return _described(random, [(pick(random, ("this", "that")), "PRON")], False, ("right", "fine", "hard", "new"))
    many = random.random() < 0.4
    return _described(
        random, noun_phrase(random, pick(random, THINGS), many, lists.BESIDE_THINGS), many, lists.THING_STATES
    )


def that_clause(random: Random) -> Words:
    """`She says that the man can swim`: `that` as a conjunction, not a determiner."""
    who, many = person(random)
    verb = random.choice(lists.THINKING)
    return [*who, *finite(random, verb, many), ("that", "CONJ"), *clause(random, *person(random))]


def to_place(random: Random) -> Words:
    """`to` before a place is a preposition."""
    who, many = person(random)
    if random.random() < 0.4:
        where: Words = [(pick(random, lists.TOWNS), "PROPN")]
    else:
        where = [("the", "DET"), (pick(random, lists.GOALS), "NOUN")]
    return [*who, *finite(random, random.choice(lists.MOVING), many), ("to", "ADP"), *where]


def to_do(random: Random) -> Words:
    """`to` before a verb is a particle."""
    who, many = person(random)
    act = choose_action(random)
    where = place(random, act.base) if not act.rest and random.random() < 0.5 else []
    wish = finite(random, random.choice(lists.WISHING), many)
    return [*who, *wish, ("to", "PART"), (act.base, "VERB"), *act.rest, *where]


def likeness(random: Random) -> Words:
    """`like` before a noun is a preposition: `She swims like a fish`."""
    who, many = person(random)
    act = finite(random, random.choice(lists.INTRANSITIVE), many)
    return [*who, *act, ("like", "ADP"), *tagged(pick(random, lists.IMAGES))]


def question(random: Random) -> Words:
    """`Can the girl swim ?`"""
    who, _ = person(random)
    act = choose_action(random)
    where = place(random, act.base) if not act.rest and random.random() < 0.6 else []
    return [(pick(random, lists.MODALS), "AUX"), *who, (act.base, "VERB"), *act.rest, *where, ("?", "PUNCT")]


def wh_question(random: Random) -> Words:
    """`Where did the man run ?`, `Who painted the chair ?`"""
    if random.random() < 0.4:
        act = with_object(random)
        return [("who", "PRON"), (act.forms[2], "VERB"), *act.rest, ("?", "PUNCT")]
    who, _ = person(random)
    word = pick(random, ("where", "when", "why", "how"))
    return [(word, "ADV"), ("did", "AUX"), *who, (random.choice(lists.INTRANSITIVE)[0], "VERB"), ("?", "PUNCT")]


def command(random: Random) -> Words:
    """`Please open the window .`"""
    please = [("please", "ADV")] if random.random() < 0.4 else []
    denied = tagged("do/AUX not/PART") if random.random() < 0.25 else []
    act = with_object(random)
    while act.rest == [("you", "PRON")]:
        act = with_object(random)
    return [*please, *denied, (act.base, "VERB"), *act.rest]


def two_clauses(random: Random) -> Words:
    """`Ben rested before Anna called him`: `before` as a conjunction."""
    link = pick(random, ("and", "but", "because", "when", "before", "after", "so", "while", "if"))
    comma = [(",", "PUNCT")] if link in ("but", "so") else []
    return [*clause(random, *person(random)), *comma, (link, "CONJ"), *clause(random, *person(random))]


def before_noun(random: Random) -> Words:
    """`before the dance`: `before` as a preposition."""
    who, many = person(random)
    act = finite(random, random.choice(lists.INTRANSITIVE), many)
    when = (pick(random, ("before", "after", "during")), "ADP")
    return [*who, *act, when, ("the", "DET"), (pick(random, lists.EVENTS), "NOUN")]


def having(random: Random) -> Words:
    """`has` as a verb before a noun, as an auxiliary before another verb."""
    who, many = person(random)
    have = "have" if many else "has"
    if random.random() < 0.5:
        return [
            *who,
            (have, "VERB"),
            *noun_phrase(random, pick(random, THINGS), random.random() < 0.4, lists.BESIDE_THINGS),
        ]
    act = with_object(random)
    while act.base in ("see", "drink", "ride"):  # their participle differs from the past
        act = with_object(random)
    return [*who, (have, "AUX"), (act.forms[2], "VERB"), *act.rest]


def relative(random: Random) -> Words:
    """`The book that she found is light`: `that` as a relative pronoun."""
    forms, objects, _ = random.choice(lists.TRANSITIVE)
    noun = pick(random, objects)
    while noun not in THINGS:
        forms, objects, _ = random.choice(lists.TRANSITIVE)
        noun = pick(random, objects)
    who, _ = person(random)
    state = (pick(random, lists.THING_STATES), "ADJ")
    return [("the", "DET"), (noun, "NOUN"), ("that", "PRON"), *who, (forms[2], "VERB"), ("was", "AUX"), state]


def existence(random: Random) -> Words:
    """`There is a light in the kitchen`: `there` as a pronoun, not an adverb."""
    noun, many = pick(random, THINGS[:11]), random.random() < 0.5
    quality = [(pick(random, lists.BESIDE_THINGS[:6]), "ADJ")] if random.random() < 0.4 else []
    if many:
        counted = [
            (pick(random, lists.NUMBERS), "NUM"),
            *quality,
            (f"{noun}es" if noun[-1] in "hx" else f"{noun}s", "NOUN"),
        ]
        return [("there", "PRON"), ("are", "AUX"), *counted, *place(random)]
    article = "an" if quality and quality[0][0][0] in "aeiou" else "a"
    return [("there", "PRON"), ("is", "AUX"), (article, "DET"), *quality, (noun, "NOUN"), *place(random)]


def _described(random: Random, who: Words, many: bool, qualities: tuple[str, ...]) -> Words:
    """A form of `to be`, perhaps with `not` and a degree adverb, and an adjective."""
    degree = [(pick(random, lists.DEGREE), "ADV")] if random.random() < 0.4 else []
    negation = [("not", "PART")] if random.random() < 0.2 else []
    quality = pick(random, qualities)
    degree = [] if quality in ("back", "right", "dry") else degree
    return [
        *who,
        (form_of_be(random, who, many), "AUX"),
        *negation,
        *degree,
        (quality, "ADV" if quality == "back" else "ADJ"),
    ]


# Relative frequency of each pattern.
SHARES: tuple[tuple[Pattern, int], ...] = (
    (statement, 10),
    (noun_act, 3),
    (copula_person, 2),
    (copula_thing, 3),
    (that_clause, 3),
    (to_place, 2),
    (to_do, 3),
    (likeness, 1),
    (question, 2),
    (wh_question, 2),
    (command, 2),
    (two_clauses, 3),
    (before_noun, 1),
    (having, 2),
    (relative, 2),
    (existence, 2),
)
PATTERNS = tuple(pattern for pattern, share in SHARES for _ in range(share))
