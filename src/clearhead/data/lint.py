"""What looks wrong in rows of data before a model trains on them, and where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LONG = 200  # words; about as many as the tokens that training keeps of a sequence by default
RATIO = 9  # of the lengths of two sides; beyond it they are hardly translations of each other
IMBALANCE = 20  # times as many examples of one class as of another
_PLACES = 5  # listed for each fault
_MISSING = frozenset({"nan", "null", "n/a", "#n/a", "<na>"})

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# UTF-8 that was once read as Latin-1 or Windows-1252: Ã© for é, â€™ for ’.
_MOJIBAKE = re.compile("[ÃÂ][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€")
_SUSPICIOUS = re.compile(f"{_CONTROL.pattern}|\ufffd|{_MOJIBAKE.pattern}")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that may be wrong, how often, and the first places."""

    what: str
    count: int
    places: tuple[str, ...] = ()


def text_problems(text: str) -> Iterator[str]:
    """The problems of a text that should be about one sentence long."""
    if not text.strip():
        yield "nothing but white space"
    elif len(text) > LONG and len(text.split()) > LONG:
        yield f"over {LONG} words"
    yield from character_problems(text)


def texts_problems(*texts: str) -> Iterator[str]:
    """The problems of several texts, each once."""
    yield from dict.fromkeys(problem for text in texts for problem in text_problems(text))


def character_problems(text: str) -> Iterator[str]:
    """The problems of the characters of a text of any length."""
    if _SUSPICIOUS.search(text):
        if _CONTROL.search(text):
            yield "control characters"
        if "\ufffd" in text:
            yield "replacement character �"
        if _MOJIBAKE.search(text):
            yield "wrongly decoded letters (Ã© for é)"


def pair_problems(source: str, target: str) -> Iterator[str]:
    """The problems of a text and its translation."""
    yield from texts_problems(source, target)
    shorter, longer = sorted((len(source.strip()), len(target.strip())))
    if shorter and longer > RATIO * shorter:
        yield f"one side over {RATIO} times as long"
    if shorter > 1 and source.strip() == target.strip():
        yield "both sides the same"


def class_problems(train: Counter[str], validation: Counter[str]) -> Iterator[Fault]:
    """The problems of how often each class appears."""
    if not train:
        return
    if len(train) == 1:
        yield Fault("only one class", 1, tuple(train))
    once = [name for name, count in train.items() if count == 1]
    if once:
        yield Fault("classes seen once", len(once), tuple(once[:_PLACES]))
    alike = [name for name in train if name != name.casefold() and name.casefold() in train]
    if alike:
        yield Fault("classes that differ from another only in case", len(alike), tuple(alike[:_PLACES]))
    missing = [name for name in train if name.casefold() in _MISSING]
    if missing:
        yield Fault("classes that may stand for a missing label", len(missing), tuple(missing[:_PLACES]))
    unseen = [name for name in validation if name not in train]
    if unseen:
        yield Fault("classes only in the validation part", len(unseen), tuple(unseen[:_PLACES]))
    (most, many), (least, few) = train.most_common()[0], train.most_common()[-1]
    if many > IMBALANCE * few:
        yield Fault(f"one class {many / few:,.0f} times as frequent as another", 1, (most, least))


def collect(found: Iterable[tuple[str, str]]) -> tuple[Fault, ...]:
    """Faults from (problem, place), the most frequent first."""
    counts: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for what, place in found:
        counts[what] += 1
        if counts[what] <= _PLACES:
            places.setdefault(what, []).append(place)
    return tuple(Fault(what, count, tuple(places[what])) for what, count in counts.most_common())
