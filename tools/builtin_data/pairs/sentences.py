"""All sentence patterns with their frequencies, and the stream of sentences that they generate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from builtin_data.pairs import (
    actions,
    commands,
    comparisons,
    compounds,
    errands,
    likes,
    questions,
    reasons,
    relatives,
    spots,
    states,
    transfers,
    world,
)
from builtin_data.pairs.choices import chance, pick
from builtin_data.pairs.circumstances import TIMES
from builtin_data.pairs.clauses import Clause, Form
from builtin_data.pairs.phrases import Phrase

Pattern = Callable[[Random], Phrase | Clause]


def fronted(random: Random) -> Phrase:
    """A clause with its time first: `yesterday we ate bread`, `ayer comimos pan`."""
    clause = actions.action(random, DATED)
    while "state" in clause.predicate.verb.flags:
        clause = actions.action(random, DATED)
    time, told = pick(random, TIMES[clause.form]), replace(clause, adverb=None).statement()
    return Phrase(f"{time.english} {told.english}", f"{time.spanish} {told.spanish}")


def sometimes(random: Random) -> Phrase:
    """`sometimes I cook`, `a veces cocino`."""
    clause = actions.action(random, HABITUAL)
    while "state" in clause.predicate.verb.flags:
        clause = actions.action(random, HABITUAL)
    told = replace(clause, adverb=None).statement()
    return Phrase(f"sometimes {told.english}", f"a veces {told.spanish}")


DATED = actions.ClauseOptions(tuple(form for form in Form if TIMES[form]), timed=False)
HABITUAL = actions.ClauseOptions((Form.PRESENT,), positive=True, timed=False)
SHARES: tuple[tuple[Pattern, int], ...] = (
    (actions.action, 30),
    (fronted, 3),
    (sometimes, 1),
    (transfers.giving, 5),
    (transfers.asking_for, 1),
    (errands.errand, 2),
    (errands.dressing, 2),
    (commands.order, 3),
    (commands.proposal, 1),
    (commands.wanting_others, 3),
    (likes.liking, 5),
    (likes.liking_asked, 1),
    (likes.wishing, 2),
    (likes.pain, 1),
    (states.feeling, 2),
    (states.quality_of_person, 4),
    (states.quality_of_thing, 4),
    (states.occupation, 1),
    (states.origin, 1),
    (states.age, 1),
    (spots.whereabouts, 3),
    (spots.living, 2),
    (spots.existence, 3),
    (spots.existence_asked, 1),
    (comparisons.identity, 2),
    (comparisons.comparison, 2),
    (comparisons.superlative, 1),
    (world.weather, 1),
    (world.hour, 1),
    (world.timetable, 1),
    (world.price, 1),
    (world.opinion, 1),
    (questions.yes_or_no, 5),
    (questions.yes_or_no_state, 2),
    (questions.yes_or_no_giving, 1),
    (questions.what, 3),
    (questions.who_does, 2),
    (questions.whom, 1),
    (questions.where, 2),
    (questions.where_to, 1),
    (questions.when, 2),
    (questions.why, 3),
    (questions.with_whom, 1),
    (questions.which, 2),
    (questions.how_many, 1),
    (questions.how_many_owned, 1),
    (questions.about_person, 1),
    (questions.about_thing, 1),
    (questions.at_what_time, 1),
    (reasons.because, 3),
    (reasons.whenever, 2),
    (compounds.two_statements, 3),
    (compounds.contrast, 2),
    (compounds.lack_of_means, 1),
    (compounds.reported, 3),
    (compounds.interrupted, 2),
    (relatives.thing_that, 2),
    (relatives.person_who, 1),
)
PATTERNS = tuple(pattern for pattern, share in SHARES for _ in range(share))

CONTRACTIONS = {
    "I am": "I'm", "you are": "you're", "he is": "he's", "she is": "she's", "we are": "we're", "they are": "they're",
    "is not": "isn't", "are not": "aren't", "was not": "wasn't", "were not": "weren't", "do not": "don't",
    "does not": "doesn't", "did not": "didn't", "have not": "haven't", "has not": "hasn't", "will not": "won't",
    "cannot": "can't", "should not": "shouldn't", "it is": "it's",
}  # fmt: skip
CONTRACTIBLE = re.compile(r"\b(" + "|".join(CONTRACTIONS) + r")\b(?=.)")


def contracted(english: str) -> str:
    """Contract auxiliaries and negations.

    >>> contracted("I am not hungry yet"), contracted("she does not eat meat")
    ("I'm not hungry yet", "she doesn't eat meat")
    """
    return CONTRACTIBLE.sub(lambda match: CONTRACTIONS[match.group()], english)


def sentences(seed: int) -> Iterator[Phrase]:
    """An endless stream of sentences, determined by the seed; sentences may repeat."""
    random = Random(seed)
    while True:
        made = pick(random, PATTERNS)(random)
        told = made.statement() if isinstance(made, Clause) else made
        yield Phrase(contracted(told.english), told.spanish) if chance(random, 0.3) else told
