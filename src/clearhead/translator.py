"""Texts in, translations out, of any number and any length: what `translate` does beyond the search itself.

Lines are taken in windows, so that a file of any size needs little memory: the first of one line, for a quick first
answer, and each of twice as many as the last. Within a window similar lengths go together. A text that is longer than
what the model learned from is cut at the ends of sentences, and its parts are translated one by one: a model that has
only seen short texts makes nothing good of a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from clearhead.decode import Hypothesis, Settings, SpecialTokens
from clearhead.text import Tokenizer
from clearhead.text.sentences import cut

LARGEST = 2048  # lines in a window
T = TypeVar("T")


def growing(things: Iterable[T], largest: int = LARGEST) -> Iterator[list[T]]:
    """One thing, then two, then four: a quick first answer, and soon enough at a time."""
    waiting, size = iter(things), 1
    while window := list(islice(waiting, size)):
        yield window
        size = min(2 * size, largest)


class Writer(Protocol):
    """Whatever writes a text for each source: an engine."""

    def generate_batch(
        self, sources: Sequence[Sequence[int]], special: SpecialTokens, settings: Settings
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, the best first."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A translation, and its score: the higher, the likelier the model finds it; not a number if not asked for."""

    text: str
    score: float


@dataclass
class Translator:
    """What writes translations, with its vocabulary."""

    writer: Writer
    tokenizer: Tokenizer
    usual: int  # tokens of a source in training; what has more is translated in parts of whole sentences
    longest: int  # tokens of a source at most; a sentence that has more is cut
    settings: Settings
    on_note: Callable[[str], None] = lambda _note: None

    def stream(self, texts: Iterable[str], largest: int = LARGEST) -> Iterator[list[Candidate]]:
        """The candidates of each text, in order, the best first; no more than `largest` texts are waited for."""
        first = 1
        for window in growing(texts, largest):
            yield from self.window(window, first)
            first += len(window)

    def window(self, texts: Sequence[str], first: int = 1) -> list[list[Candidate]]:
        """The same for texts that are all there; `first` is the number of the first, for notes."""
        special = self.special
        whole = self.tokenizer.encode_batch([text.strip() for text in texts])
        parts = [self._parts(text, ids, first + i) for i, (text, ids) in enumerate(zip(texts, whole, strict=True))]
        found = iter(self.writer.generate_batch([ids for each in parts for ids in each], special, self.settings))
        return [
            self._joined([next(found) for _ in each]) if each else [Candidate(text.strip(), 0.0)]
            for text, each in zip(texts, parts, strict=True)
        ]

    @property
    def special(self) -> SpecialTokens:
        """The tokens that have a meaning of their own."""
        return SpecialTokens(self.tokenizer.pad, self.tokenizer.start, self.tokenizer.stop)

    def _parts(self, text: str, ids: list[int], number: int) -> list[list[int]]:
        """The ids of a text, in parts that are short enough; none if there is nothing that could be translated."""
        if not any(self._says_something(token) for token in ids):
            if text.strip():
                self.on_note(f"text {number} has nothing that the model knows: it stays as it is")
            return []
        if len(ids) <= self.usual:
            return [ids]
        encode = self.tokenizer.encode
        parts = [encode(part) for part in cut(text, self.usual, self.longest, lambda part: len(encode(part)))]
        if len(parts) > 1:
            self.on_note(f"text {number} is longer than what the model learned from: translated in {len(parts)} parts")
        return parts

    def _says_something(self, token: int) -> bool:
        """Whether it is known, and more than the sign of a blank."""
        return token != self.tokenizer.unknown and bool(self.tokenizer.pieces([token])[0].strip("▁ "))

    def _joined(self, parts: Sequence[Sequence[Hypothesis]]) -> list[Candidate]:
        """The best of all parts as one text, then the second best, as far as every part has one."""
        ranks = list(zip(*parts, strict=False))
        texts = (" ".join(self.tokenizer.decode_batch([part.ids for part in rank])) for rank in ranks)
        return [Candidate(t, sum(p.score for p in rank) / len(rank)) for t, rank in zip(texts, ranks, strict=True)]
