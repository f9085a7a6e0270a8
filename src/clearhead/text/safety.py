"""Whether a tokenizer that somebody else made can be trusted to end.

The library matches regular expressions by backtracking: `(a+)+b` on thirty letters a takes hours. A pattern is refused
if its time could grow faster than the square of the length of a text: where in one alternative two repetitions, or a
repetition of a repetition, are followed by something that can fail to match, so that each combination is tried.

    check_tokenizer(json.loads(text))        before the library reads it
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

MAX_LENGTH = 2000  # characters of a pattern
MAX_DEPTH = 20  # groups within groups
SPARE_IDS = 100_000  # that no token has
MAX_GROWTH = 64  # how many times as long replacements may make a text
LETTERS = 10_000  # of the text for which tries are counted
MAX_TRIES = 10 * LETTERS  # at each place of the text

_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}|\{,(\d+)\}")
_GROUP = re.compile(r"\(\?(?:[:>=!|]|<[=!]|<\w+>|[a-z-]*:|[a-z-]+(?=\)))|\(")
_ESCAPE = re.compile(r"\\(?:[pPx]\{[^}]*\}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_REFERENCE = re.compile(r"\\(?:[1-9]|[kg]<)")


def check_tokenizer(tokenizer: Any) -> None:
    """Raise a ValueError for a tokenizer.json on which the library could take forever, or all memory."""
    _check_ids(tokenizer)
    growth = 1
    for part in _parts(tokenizer):
        pattern = part.get("Regex")
        if isinstance(pattern, str) and not is_fast(pattern):
            raise ValueError(f"the pattern {pattern[:80]!r} could take forever on some text; replace it")
        content = part.get("content")
        if part.get("type") == "Replace" and isinstance(content, str):
            growth *= max(1, len(content))
    if growth > MAX_GROWTH:
        raise ValueError(f"its replacements make a text more than {MAX_GROWTH} times as long")


def _check_ids(tokenizer: Any) -> None:
    """Refuse ids far beyond the number of tokens: the library counts up to the highest."""
    if not isinstance(tokenizer, dict) or not isinstance(tokenizer.get("model"), dict):
        raise ValueError("it has no model")
    vocabulary, added = tokenizer["model"].get("vocab") or {}, tokenizer.get("added_tokens") or []
    if not isinstance(vocabulary, dict | list) or not isinstance(added, list):
        raise ValueError("its vocabulary is not a list of tokens")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)]
    highest = max((number for number in ids if isinstance(number, int)), default=0)
    if highest > 2 * (len(vocabulary) + len(added)) + SPARE_IDS:
        raise ValueError(f"it has {len(vocabulary):,} tokens, one of them with the id {highest}")


def _parts(tokenizer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every object of the JSON except for the vocabulary, which has thousands."""
    open_parts: list[Any] = [value for name, value in tokenizer.items() if name not in ("model", "added_tokens")]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, dict):
            yield part
            open_parts.extend(part.values())
        elif isinstance(part, list):
            open_parts.extend(part)


def is_fast(pattern: str) -> bool:
    """Whether the time of a pattern grows at most with the square of the length of the text."""
    if len(pattern) > MAX_LENGTH or _REFERENCE.search(pattern):
        return False
    try:
        return _Reader(pattern).alternatives(0).tried <= MAX_TRIES
    except ValueError:
        return False


@dataclass(frozen=True)
class _Cost:
    """In how many ways a part can match."""

    tried: float = 1  # combinations that are tried in turn, because what follows them can fail
    open: float = 1  # combinations at the end, which are tried if what comes next can fail
    can_fail: bool = False

    def then(self, other: _Cost) -> _Cost:
        tried, before = self.tried * other.tried, self.open
        if other.can_fail:
            tried, before = tried * before, 1
        return _Cost(tried, before * other.open, self.can_fail or other.can_fail)

    def either(self, other: _Cost) -> _Cost:
        return _Cost(max(self.tried, other.tried), self.open + other.open, self.can_fail or other.can_fail)

    def repeated(self, least: int, most: float) -> _Cost:
        """This part, `least` to `most` times: if it can match in several ways, each time in any of them."""
        lengths = min(LETTERS, most - least + 1)
        ways = lengths if self.open * self.tried == 1 or most <= 1 else math.inf
        return _Cost(self.tried, self.open * ways, self.can_fail and least > 0)


class _Reader:
    """Reads a regular expression from left to right."""

    def __init__(self, pattern: str):
        self.pattern, self.at = pattern, 0

    def alternatives(self, depth: int) -> _Cost:
        """a|b|c, up to the end of the group."""
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        cost = self._sequence(depth)
        while self._next("|"):
            cost = cost.either(self._sequence(depth))
        if depth == 0 and self.at < len(self.pattern):
            raise ValueError("a bracket too many")
        return cost

    def _sequence(self, depth: int) -> _Cost:
        cost = _Cost()
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            part = self._part(depth)
            while found := _QUANTIFIER.match(self.pattern, self.at):
                self.at = found.end()
                part = part.repeated(*_bounds(found))
                if not self._next("?"):  # lazy
                    self._next("+")  # possessive
            cost = cost.then(part)
        return cost

    def _part(self, depth: int) -> _Cost:
        if found := _GROUP.match(self.pattern, self.at):
            if self.pattern.startswith("(?", self.at) and found[0] == "(":
                raise ValueError("an unknown kind of group")
            self.at = found.end()
            cost = self.alternatives(depth + 1)
            if not self._next(")"):
                raise ValueError("a bracket is missing")
            looks = found[0].endswith(("=", "!"))  # ahead or behind: it can fail even where what it looks for cannot
            return replace(cost, can_fail=True) if looks else cost
        if self.pattern[self.at] == "[":
            self._class()
        elif found := _ESCAPE.match(self.pattern, self.at):
            self.at = found.end()
        else:
            self.at += 1
        return _Cost(can_fail=True)

    def _class(self) -> None:
        """[…], which may hold other classes."""
        depth = 0
        while self.at < len(self.pattern):
            if found := _ESCAPE.match(self.pattern, self.at):
                self.at = found.end()
                continue
            depth += {"[": 1, "]": -1}.get(self.pattern[self.at], 0)
            self.at += 1
            if depth == 0:
                return
        raise ValueError("a class without an end")

    def _next(self, character: str) -> bool:
        found = self.pattern.startswith(character, self.at)
        self.at += found
        return found


def _bounds(found: re.Match[str]) -> tuple[int, float]:
    """The least and most repetitions of a quantifier."""
    if found[0] in "*+?":
        return int(found[0] == "+"), 1 if found[0] == "?" else math.inf
    if found[4]:
        return 0, int(found[4])
    least = int(found[1])
    return least, least if found[2] is None else int(found[3]) if found[3] else math.inf
