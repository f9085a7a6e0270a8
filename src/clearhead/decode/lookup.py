"""Prompt lookup: several tokens in one step, where a text repeats what it has said before.

When the last tokens of a text have occurred in it before, those that followed them there are a guess of what comes now.
The model reads the guess in one step, together with the last token. Each token is then chosen as always, from the
logits that follow the tokens before it; the first one that differs from the guess ends it, and what the model has read
beyond is taken back. So a guess changes the number of steps, never a token.

A step of several tokens takes longer than one of a single token. So a guess grows while guesses are right, and after
a wrong one pauses, for twice as many occasions each time: a text that does not repeat itself makes few guesses.
"""

from __future__ import annotations

from collections.abc import Sequence

NGRAM = 3  # tokens that must have occurred before
FIRST_GUESS, LONGEST_GUESS = 2, 16  # tokens
LONGEST_PAUSE = 64  # occasions


class PromptLookup:
    """Guesses for one row."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}  # the place after the last occurrence of each n-gram
        self._indexed = NGRAM - 1  # tokens whose n-grams are known
        self._length = FIRST_GUESS  # of the next guess
        self._pause = self._skipped = 0  # occasions to leave out; those that were

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow; none where nothing has occurred before, or guesses were wrong."""
        for end in range(self._indexed + 1, len(ids)):  # the last n-gram itself has nothing after it yet
            self._after[tuple(ids[end - NGRAM : end])] = end
        self._indexed = max(self._indexed, len(ids) - 1)
        place = self._after.get(tuple(ids[-NGRAM:]))
        if place is None or most < 1:
            return []
        if self._skipped < self._pause:
            self._skipped += 1
            return []
        return list(ids[place : place + min(self._length, most)])

    def learn(self, guessed: int, right: int) -> None:
        """Take note of how many tokens of a guess were right."""
        self._skipped = 0
        if right == guessed:
            self._pause, self._length = 0, min(2 * self._length, LONGEST_GUESS)
        elif right == 0:
            self._pause, self._length = min(max(1, 2 * self._pause), LONGEST_PAUSE), FIRST_GUESS
        else:
            self._length = max(FIRST_GUESS, right)
