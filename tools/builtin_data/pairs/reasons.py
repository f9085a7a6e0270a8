"""Reasons and conditions: a feeling and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from builtin_data.pairs.adjectives import adjective
from builtin_data.pairs.choices import chance, choose_plain_subject, forms_of, pick
from builtin_data.pairs.clauses import Clause, Form, Predicate
from builtin_data.pairs.phrases import Phrase
from builtin_data.pairs.shorthand import predicates
from builtin_data.pairs.states import FEELINGS, TENER, be_predicate
from builtin_data.pairs.subjects import HE, PRONOUNS, SHE, THEY, WE, Subject
from builtin_data.table import rows

# feeling | what follows; a `+` marks the object
FOLLOWING = """
hungry     | eat; eat + bread; eat + soup; eat + a sandwich; eat + fruit; cook + rice; prepare + dinner; order + a pizza
thirsty    | drink + water; drink + juice; drink + lemonade; order + water; drink + milk; order + tea
cold       | drink + tea; close + the window; wear + a coat; wear + a sweater; drink + coffee; eat + soup
hot        | open + the window; drink + water; swim; eat + ice cream; open + the door; drink + lemonade
sleepy     | sleep; go to bed; take a nap; rest; drink + coffee
tired      | rest; sleep; take a nap; go to bed; sit down; drink + coffee
sick       | rest; sleep; go to bed; drink + tea; call + the doctor
sad        | cry; listen to + music; sing + a song; call + a friend; play + the guitar
happy      | sing; dance; play + the guitar; play + the piano; sing + a song
bored      | watch television; play cards; play + chess; read + a book; watch + a film; take a walk; draw
busy       | work; study
nervous    | walk; drink + tea; cry
in a hurry | run
"""
# feeling | what is not done
AVOIDED = """
hungry     | study; rest; sleep
thirsty    | run; dance; work
cold       | swim; take a walk; eat + ice cream
hot        | run; dance; eat + soup; drink + coffee; wear + a coat
sleepy     | read; study; watch + the film; work; dance
tired      | run; dance; work; cook; play + football; take a walk; wash the dishes; go shopping
sick       | work; swim; travel; play + tennis; eat; run; go shopping; dance; cook
sad        | dance; sing; eat; talk on the phone; play cards; play + the violin
happy      | cry
bored      | study; read; rest
busy       | travel; rest; watch television; play cards; take a nap; go shopping; cook; watch + the match
nervous    | sleep; eat; rest; speak + English; sing
in a hurry | rest; take a walk; have breakfast; take a shower; have lunch; cook; watch television
"""
LASTING = (Form.CONTINUOUS, Form.WANT, Form.GOING)
REFUSED = (Form.WANT, Form.CAN, Form.CONTINUOUS)


@cache
def consequences() -> tuple[tuple[str, tuple[Predicate, ...], tuple[Predicate, ...]], ...]:
    """Each feeling with the actions that follow from it and those that do not."""
    avoided = {how: predicates(actions) for how, actions in rows(AVOIDED, 2)}
    return tuple((how, predicates(actions), avoided[how]) for how, actions in rows(FOLLOWING, 2))


def because(random: Random) -> Phrase:
    """`the boy is not eating because he is sick`, `el niño no está comiendo porque está enfermo`."""
    how, does, does_not = pick(random, consequences())
    who, negative = choose_plain_subject(random), chance(random, 0.4)
    action = pick(random, does_not if negative else does)
    forms = forms_of(action.verb, REFUSED if negative else LASTING) or (Form.PRESENT,)
    form = pick(random, forms)
    return join_clauses(Clause(who, action, form, negative), Phrase("because", "porque"), feeling_of(who, how))


def whenever(random: Random) -> Phrase:
    """`when I am hungry, I eat bread`, `cuando tengo hambre, como pan`."""
    how, does, does_not = pick(random, consequences())
    who, negative = choose_plain_subject(random), chance(random, 0.3)
    action = pick(random, does_not if negative else does)
    first, then = feeling_of(who, how).statement(), Clause(pronoun_for(who), action, Form.PRESENT, negative).statement()
    return Phrase(f"when {first.english}, {then.english}", f"cuando {first.spanish}, {then.spanish}")


def join_clauses(first: Clause, link: Phrase, second: Clause) -> Phrase:
    """Two clauses with the same subject, named only in the first."""
    one, two = first.statement(), replace(second, subject=pronoun_for(second.subject)).statement()
    return Phrase(f"{one.english} {link.english} {two.english}", f"{one.spanish} {link.spanish} {two.spanish}")


def feeling_of(who: Subject, how: str) -> Clause:
    """A clause that says that a person is hungry, tired, …."""
    for english, spanish, _ in FEELINGS:
        if how == english:
            return Clause(who, Predicate(TENER, english, spanish), Form.PRESENT)
    return Clause(who, be_predicate(who, adjective(how)), Form.PRESENT)


def pronoun_for(who: Subject) -> Subject:
    """The pronoun that refers back to a subject; Spanish drops it."""
    if who in PRONOUNS:
        return replace(who, spanish="")
    pronoun = {"his": HE, "her": SHE, "their": THEY, "our": WE}[who.possessive]
    return replace(pronoun, spanish="", gender=who.gender)
