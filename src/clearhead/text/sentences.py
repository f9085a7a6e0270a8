"""Split a text that is too long: at the ends of sentences, or else of clauses, words, characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

CHUNK = 1 << 14  # maximum characters of a chunk
ENDS = (
    re.compile(r"(?<=[.!?…])['\"”’»)\]]*\s+|(?<=[。！？])"),
    re.compile(r"(?<=[,;:–—])\s+|(?<=[、；，：])"),
    re.compile(r"\s+"),
)


def split_chunks(text: str) -> Iterator[str]:
    """The text in chunks, cut before a space if possible: the memory of tokenising grows with the length of a text."""
    start = 0
    while len(text) - start > CHUNK:
        space = text.rfind(" ", start + 1, start + CHUNK)
        end = space if space > 0 else start + CHUNK
        yield text[start:end]
        start = end
    yield text[start:]


def split_sentences(text: str, usual: int, longest: int, length: Callable[[str], int]) -> list[str]:
    """Split a text above the usual length into groups of whole sentences; only a sentence above `longest` is split."""
    text = text.strip()
    if not text or length(text) <= usual:
        return [text] if text else []
    parts = _joined(_pieces(text, ENDS[0]), usual, length)
    return [piece for part in parts for piece in _fitted(part, longest, length)]


def _fitted(text: str, longest: int, length: Callable[[str], int]) -> list[str]:
    """Split greedily into parts of at most `longest`; no part is empty."""
    text = text.strip()
    if not text or length(text) <= longest:
        return [text] if text else []
    for end in ENDS:
        if len(pieces := _pieces(text, end)) > 1:
            return [part for joined in _joined(pieces, longest, length) for part in _fitted(joined, longest, length)]
    middle = len(text) // 2
    if not middle:  # a single character is too long
        return [text]
    return [*_fitted(text[:middle], longest, length), *_fitted(text[middle:], longest, length)]


def _pieces(text: str, end: re.Pattern[str]) -> list[str]:
    """The text between matches of `end`; closing quotes and spaces stay with the piece before them."""
    borders = [0, *(match.end() for match in end.finditer(text)), len(text)]
    return [text[a:b] for a, b in pairwise(borders) if text[a:b].strip()]


def _joined(pieces: list[str], longest: int, length: Callable[[str], int]) -> list[str]:
    """Join neighbours while they fit into `longest`."""
    joined = [pieces[0]]
    for piece in pieces[1:]:
        if length(joined[-1] + piece) <= longest:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined
