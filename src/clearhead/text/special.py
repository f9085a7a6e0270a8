"""The tokens that stand for no text: where a sentence starts and stops, what pads it, what hides a word.

Every vocabulary of ours begins with them, so their ids are the same for every scheme and every corpus. A
vocabulary of GPT-2 has one special token only, which then plays every part.
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
        """The ids that decoding leaves out; an unknown word stays visible, because hiding it would hide a loss."""
        return frozenset((self.pad, self.start, self.stop, self.mask, self.cls))


def special_ids(vocabulary: Mapping[str, int]) -> SpecialIds | None:
    """The special ids of a vocabulary of ours or of GPT-2; none if it is neither."""
    if all(vocabulary.get(token) == index for index, token in enumerate(SPECIALS)):
        return SpecialIds(*range(len(SPECIALS)))
    if END_OF_TEXT in vocabulary:
        return SpecialIds(*[vocabulary[END_OF_TEXT]] * len(SPECIALS))
    return None
