"""A text that is too long, cut where it hurts least: at the ends of sentences, else of clauses, words, characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

ENDS = (
    re.compile(r"(?<=[.!?…])['\"”’»)\]]*\s+|(?<=[。！？])"),
    re.compile(r"(?<=[,;:–—])\s+|(?<=[、；，：])"),
    re.compile(r"\s+"),
)


def cut(text: str, usual: int, longest: int, length: Callable[[str], int]) -> list[str]:
    """A text of more than the usual length in parts of whole sentences; only a sentence above the longest is cut."""
    text = text.strip()
    if not text or length(text) <= usual:
        return [text] if text else []
    parts = _joined(_pieces(text, ENDS[0]), usual, length)
    return [piece for part in parts for piece in _fitted(part, longest, length)]


def _fitted(text: str, longest: int, length: Callable[[str], int]) -> list[str]:
    """Parts no longer than `longest`, as few as come of taking what fits, one after the other; never an empty one."""
    text = text.strip()
    if not text or length(text) <= longest:
        return [text] if text else []
    for end in ENDS:
        if len(pieces := _pieces(text, end)) > 1:
            return [part for joined in _joined(pieces, longest, length) for part in _fitted(joined, longest, length)]
    middle = len(text) // 2
    if not middle:  # one character that is more than fits
        return [text]
    return [*_fitted(text[:middle], longest, length), *_fitted(text[middle:], longest, length)]


def _pieces(text: str, end: re.Pattern[str]) -> list[str]:
    """What stands between the ends; marks after an end belong to what it ends, blanks go with what is before them."""
    borders = [0, *(match.end() for match in end.finditer(text)), len(text)]
    return [text[a:b] for a, b in pairwise(borders) if text[a:b].strip()]


def _joined(pieces: list[str], longest: int, length: Callable[[str], int]) -> list[str]:
    """Neighbours put together again as long as they fit."""
    joined = [pieces[0]]
    for piece in pieces[1:]:
        if length(joined[-1] + piece) <= longest:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined
