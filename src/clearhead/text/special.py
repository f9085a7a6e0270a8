"""Special tokens: start, stop, padding, mask, class and unknown.

Every vocabulary that clearhead trains begins with them, so their ids are the same for every scheme and every corpus.
GPT-2's vocabulary has a single special token, which takes all these roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SPECIALS = ("[PAD]", "[UNK]", "[START]", "[STOP]", "[MASK]", "[CLASS]")
PAD, UNKNOWN, START, STOP, MASK, CLASS = SPECIALS
END_OF_TEXT = "<|endoftext|>"  # GPT-2's only special token


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The id of each special token in one vocabulary."""

    pad: int
    unknown: int
    start: int
    stop: int
    mask: int
    cls: int

    @property
    def silent(self) -> frozenset[int]:
        """The ids that decoding leaves out; the unknown token stays, because something was lost there."""
        return frozenset((self.pad, self.start, self.stop, self.mask, self.cls))


def special_ids(vocabulary: Mapping[str, int]) -> SpecialIds | None:
    """The special ids of a vocabulary of clearhead or of GPT-2; None if it is neither."""
    if all(vocabulary.get(token) == index for index, token in enumerate(SPECIALS)):
        return SpecialIds(*range(len(SPECIALS)))
    if END_OF_TEXT in vocabulary:
        return SpecialIds(*[vocabulary[END_OF_TEXT]] * len(SPECIALS))
    return None
