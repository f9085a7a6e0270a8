"""Lines with words of their own: `aqa mjfmxk aqa oubd mjfmxk …`, made up anew for each line.

Nobody can know such a word before it was read once, and everybody can afterwards: a language model gets better within
a line only by learning from that line (in-context learning), for which it needs induction heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from string import ascii_lowercase

LINES = 15_000
WORDS = 6  # that a line has
LETTERS = (3, 7)  # of a word: at least, at most
WRITTEN = 20  # words of a line, most of them again
SEED = 1


def invented() -> Iterator[str]:
    """The lines of the dataset, always the same ones."""
    random = Random(SEED)
    for _ in range(LINES):
        words = ["".join(random.choices(ascii_lowercase, k=random.randint(*LETTERS))) for _ in range(WORDS)]
        yield " ".join(random.choices(words, k=WRITTEN))
