"""How a review says it: plainly, by denying the opposite, by giving way first, against what was expected.

Every pattern serves both opinions, and most with words of both kinds, so that no single word gives the opinion away.
"""

from __future__ import annotations

from collections.abc import Callable

from builtin_data.reviews.voice import Voice, article
from builtin_data.reviews.words import COMPANIONS, EXPERTS

Pattern = Callable[[Voice], str]


def plain(voice: Voice) -> str:
    """Two parts, both to the point."""
    first, second = voice.parts(2)
    return f"{voice.of(first)} and {voice.of(second)}"


def verdict(voice: Voice) -> str:
    """One word for the whole."""
    return f"this was {article(voice.stronger(voice.word()))} {voice.topic.name}"


def denied(voice: Voice) -> str:
    """Not the opposite: `not a bad film`."""
    word, name = voice.common(agreeing=False), voice.topic.name
    return voice.pick(
        (
            f"this is not {article(word)} {name}",
            f"not {article(word)} {name} at all",
            f"nobody could call this {article(word)} {name}",
            f"I would never call this {name} {word}",
            f"this {name} is anything but {voice.word(agreeing=False)}",
            f"{word} is the last word I would use for this {name}",
        )
    )


def part_denied(voice: Voice) -> str:
    """A part that was not the opposite, and one that was as it should be."""
    first, second = voice.parts(2)
    return f"{first.name} not {voice.quality(first, agreeing=False)}, and {voice.of(second)}"


def given_way(voice: Voice) -> str:
    """What speaks against it, and the verdict all the same."""
    end = voice.either(
        ("I loved it", "I enjoyed every minute of it", "I was very happy with it", "it won me over"),
        ("I hated it", "I regretted every minute of it", "I was very unhappy with it", "it left me cold"),
    )
    first, second = voice.parts(2)
    although = voice.pick(("although", "even though", "though"))
    return voice.pick(
        (
            f"{although} {voice.of(first, False)}, {end}",
            f"{end}, {although} {voice.of(first, False)}",
            f"{although} {voice.of(first, False)} and {voice.of(second, False)}, {end}",
        )
    )


def turned(voice: Voice) -> str:
    """One part against the whole: the whole counts."""
    whole = voice.either(
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
    (part,) = voice.parts(1)
    return f"{voice.of(part, False)}, but {whole}"


def expected(voice: Voice) -> str:
    """Against what was expected."""
    before = voice.either(
        (
            "I expected to hate it",
            "I was afraid it would be dreadful",
            "I went with a heavy heart",
            "I had feared the worst",
        ),
        ("I expected to love it", "I hoped it would be great", "I went with a light heart", "I had hoped for the best"),
    )
    after = voice.either(
        ("I was charmed", "I was wrong", "it was a delight"), ("I was bored", "I was wrong", "it was a disaster")
    )
    return f"{before}, but {voice.pick((after, f'it was {voice.stronger(voice.word())}'))}"


def hearsay(voice: Voice) -> str:
    """What others said, and whether they were right."""
    true = voice.chance(0.5)
    answer = voice.pick(("and rightly so", "and I agree") if true else ("but I cannot agree", "which is nonsense"))
    return f"{voice.pick(EXPERTS)} said that this {voice.topic.name} was {voice.word(agreeing=true)}, {answer}"


def again(voice: Voice) -> str:
    """Whether one would do it again, or tell others to."""
    do = voice.topic.again
    return voice.either(
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


def nothing(voice: Voice) -> str:
    """Nothing to blame, or nothing to praise."""
    found = f"I could find nothing {voice.common(agreeing=False)} in this {voice.topic.name}"
    return voice.either(
        (found, "there was nothing I did not like", "it lacks nothing", "I have nothing to complain about"),
        (found, "there was nothing I liked", "it lacks everything", "I have nothing kind to say about it"),
    )


def company(voice: Voice) -> str:
    """What somebody else thought, and the reviewer with or against them."""
    same = voice.chance(0.4)
    praise, blame = (
        ("loved it", "found it wonderful", "had a good time"),
        ("hated it", "found it awful", "had a bad time"),
    )
    theirs = voice.pick(praise if voice.liked == same else blame)
    return f"{voice.pick(COMPANIONS)} {theirs}, {'and so did I' if same else 'but I did not'}"


def acted(voice: Voice) -> str:
    """What the reviewer did, which says it all."""
    return f"I {voice.deed()}"


def compared(voice: Voice) -> str:
    """Better or worse than the last one, or just the same."""
    last = f"the last {voice.topic.name} was"
    if voice.chance(0.5):
        change = voice.either(("far better", "much better"), ("far worse", "much worse"))
        return f"{last} {voice.word(agreeing=False)}, but this one was {change}"
    return f"{last} {voice.word()}, and this one was {voice.either(('no worse',), ('no better',))}"


# How often each is used.
SHARES: tuple[tuple[Pattern, int], ...] = (
    (plain, 4),
    (verdict, 3),
    (denied, 6),
    (part_denied, 4),
    (given_way, 6),
    (turned, 4),
    (expected, 3),
    (hearsay, 4),
    (nothing, 2),
    (company, 2),
    (compared, 3),
    (acted, 1),
    (again, 1),
)
PATTERNS = tuple(pattern for pattern, share in SHARES for _ in range(share))
MIXED = (given_way, turned)  # these have found something on the other side


def closings(opening: Pattern) -> tuple[Pattern, ...]:
    """What can follow an opening without saying it again or taking it back."""
    return tuple(
        pattern
        for pattern in (acted, again, nothing, company)
        if pattern is not opening and not (pattern is nothing and opening in MIXED)
    )
