"""Sentence patterns of reviews: plain statements, negated opposites, concessions, disappointed expectations.

Every pattern can express both opinions, most of them with positive and negative words, so that no single word gives
the label away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from builtin_data.reviews.words import BLAME, COMPANIONS, EXPERTS, PRAISE, STRONGER, UTMOST, Part, Topic


@dataclass(frozen=True, slots=True)
class Reviewer:
    """A reviewer with an opinion; `agreeing` words express that opinion, the others its opposite."""

    random: Random
    topic: Topic
    liked: bool

    def pick(self, items: Sequence[str]) -> str:
        return items[int(self.random.random() * len(items))]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def either(self, positive: Sequence[str], negative: Sequence[str]) -> str:
        """A positive or a negative phrase, by the opinion."""
        return self.pick(positive if self.liked else negative)

    def adjective(self, agreeing: bool = True) -> str:
        """An adjective for the topic."""
        return self.pick(self.topic.good if self.liked == agreeing else self.topic.bad)

    def general_adjective(self, agreeing: bool = True) -> str:
        """An adjective that suits any topic."""
        return self.pick(PRAISE if self.liked == agreeing else BLAME)

    def intensified(self, word: str) -> str:
        """The adjective with an intensifier, unless it is already extreme."""
        return word if word in UTMOST else f"{self.pick(STRONGER)} {word}"

    def parts(self, count: int) -> list[Part]:
        return self.random.sample(self.topic.parts, count)

    def part_phrase(self, part: Part, agreeing: bool = True) -> str:
        """A part with an adjective, sometimes intensified."""
        word = self.part_adjective(part, agreeing)
        return f"{part.name} {self.intensified(word) if self.chance(0.4) else word}"

    def part_adjective(self, part: Part, agreeing: bool = True) -> str:
        return self.pick(part.good if self.liked == agreeing else part.bad)

    def action(self) -> str:
        return self.pick(self.topic.good_deeds if self.liked else self.topic.bad_deeds)


def article(words: str) -> str:
    """The words with `a` or `an`.

    >>> article("awful film"), article("unique film")
    ('an awful film', 'a unique film')
    """
    return f"{'an' if words[0] in 'aeiou' and not words.startswith('uni') else 'a'} {words}"


Pattern = Callable[[Reviewer], str]


def plain(reviewer: Reviewer) -> str:
    """Two parts, both in line with the opinion."""
    first, second = reviewer.parts(2)
    return f"{reviewer.part_phrase(first)} and {reviewer.part_phrase(second)}"


def verdict(reviewer: Reviewer) -> str:
    """One adjective for the topic."""
    return f"this was {article(reviewer.intensified(reviewer.adjective()))} {reviewer.topic.name}"


def negated_opposite(reviewer: Reviewer) -> str:
    """The negated opposite: `not a bad film`."""
    word, name = reviewer.general_adjective(agreeing=False), reviewer.topic.name
    return reviewer.pick(
        (
            f"this is not {article(word)} {name}",
            f"not {article(word)} {name} at all",
            f"nobody could call this {article(word)} {name}",
            f"I would never call this {name} {word}",
            f"this {name} is anything but {reviewer.adjective(agreeing=False)}",
            f"{word} is the last word I would use for this {name}",
        )
    )


def negated_part(reviewer: Reviewer) -> str:
    """A part with a negated opposite, and a part with an agreeing adjective."""
    first, second = reviewer.parts(2)
    return f"{first.name} not {reviewer.part_adjective(first, agreeing=False)}, and {reviewer.part_phrase(second)}"


def concession(reviewer: Reviewer) -> str:
    """A concession, then the verdict."""
    end = reviewer.either(
        ("I loved it", "I enjoyed every minute of it", "I was very happy with it", "it won me over"),
        ("I hated it", "I regretted every minute of it", "I was very unhappy with it", "it left me cold"),
    )
    first, second = reviewer.parts(2)
    although = reviewer.pick(("although", "even though", "though"))
    return reviewer.pick(
        (
            f"{although} {reviewer.part_phrase(first, False)}, {end}",
            f"{end}, {although} {reviewer.part_phrase(first, False)}",
            f"{although} {reviewer.part_phrase(first, False)} and {reviewer.part_phrase(second, False)}, {end}",
        )
    )


def contrast(reviewer: Reviewer) -> str:
    """One part that disagrees, then the verdict on the whole."""
    whole = reviewer.either(
        (
            "as a whole it was a joy",
            "it was worth every penny",
            "all in all it was a success",
            "the rest was a delight",
        ),
        (
            "as a whole it was a mess",
            "it was not worth a penny",
            "all in all it was a failure",
            "the rest was a disaster",
        ),
    )
    (part,) = reviewer.parts(1)
    return f"{reviewer.part_phrase(part, False)}, but {whole}"


def expected(reviewer: Reviewer) -> str:
    """The opposite of what was expected."""
    before = reviewer.either(
        (
            "I expected to hate it",
            "I was afraid it would be dreadful",
            "I went with a heavy heart",
            "I had feared the worst",
        ),
        ("I expected to love it", "I hoped it would be great", "I went with a light heart", "I had hoped for the best"),
    )
    after = reviewer.either(
        ("I was charmed", "I was wrong", "it was a delight"), ("I was bored", "I was wrong", "it was a disaster")
    )
    return f"{before}, but {reviewer.pick((after, f'it was {reviewer.intensified(reviewer.adjective())}'))}"


def hearsay(reviewer: Reviewer) -> str:
    """The opinion of others, and whether the reviewer agrees."""
    true = reviewer.chance(0.5)
    answer = reviewer.pick(("and rightly so", "and I agree") if true else ("but I cannot agree", "which is nonsense"))
    expert, name = reviewer.pick(EXPERTS), reviewer.topic.name
    return f"{expert} said that this {name} was {reviewer.adjective(agreeing=true)}, {answer}"


def again(reviewer: Reviewer) -> str:
    """Whether the reviewer would repeat or recommend it."""
    do = reviewer.topic.again
    return reviewer.either(
        (
            f"I cannot wait to {do}",
            f"I would gladly {do}",
            "do not miss it",
            f"I will certainly {do}",
            "I cannot recommend it enough",
        ),
        (
            f"I will never {do}",
            f"nothing could make me {do}",
            "do not waste your money",
            f"I will certainly not {do}",
            "I cannot recommend it to anyone",
        ),
    )


def nothing(reviewer: Reviewer) -> str:
    """Nothing to blame, or nothing to praise."""
    found = f"I could find nothing {reviewer.general_adjective(agreeing=False)} in this {reviewer.topic.name}"
    return reviewer.either(
        (found, "there was nothing I did not like", "it lacks nothing", "I have nothing to complain about"),
        (found, "there was nothing I liked", "it lacks everything", "I have nothing kind to say about it"),
    )


def companion(reviewer: Reviewer) -> str:
    """The opinion of a companion, and whether the reviewer shares it."""
    same = reviewer.chance(0.4)
    praise, blame = (
        ("loved it", "found it wonderful", "had a good time"),
        ("hated it", "found it awful", "had a bad time"),
    )
    theirs = reviewer.pick(praise if reviewer.liked == same else blame)
    return f"{reviewer.pick(COMPANIONS)} {theirs}, {'and so did I' if same else 'but I did not'}"


def acted(reviewer: Reviewer) -> str:
    """What the reviewer did."""
    return f"I {reviewer.action()}"


def compared(reviewer: Reviewer) -> str:
    """A comparison with the previous one."""
    last = f"the last {reviewer.topic.name} was"
    if reviewer.chance(0.5):
        change = reviewer.either(("far better", "much better"), ("far worse", "much worse"))
        return f"{last} {reviewer.adjective(agreeing=False)}, but this one was {change}"
    return f"{last} {reviewer.adjective()}, and this one was {reviewer.either(('no worse',), ('no better',))}"


# Relative frequency of each pattern.
SHARES: tuple[tuple[Pattern, int], ...] = (
    (plain, 4),
    (verdict, 3),
    (negated_opposite, 6),
    (negated_part, 4),
    (concession, 6),
    (contrast, 4),
    (expected, 3),
    (hearsay, 4),
    (nothing, 2),
    (companion, 2),
    (compared, 3),
    (acted, 1),
    (again, 1),
)
PATTERNS = tuple(pattern for pattern, share in SHARES for _ in range(share))
MIXED = (concession, contrast)  # patterns that name something on the other side


def closings(opening: Pattern) -> tuple[Pattern, ...]:
    """The patterns that can follow an opening without repeating or contradicting it."""
    return tuple(
        pattern
        for pattern in (acted, again, nothing, companion)
        if pattern is not opening and not (pattern is nothing and opening in MIXED)
    )
