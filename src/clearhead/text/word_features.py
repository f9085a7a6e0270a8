"""What a word shows of itself and of its place: hashed features, for taggers that have seen few words.

    walked  ->  walked, w-, wa-, wal-, -d, -ed, -ked, -lked, xx, before: he, after: home

A feature is a text, and its number the hash of that text: no list of features is needed, and a word that training
never saw still has an ending that it did see. T words, F features
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

BEGINNINGS, ENDINGS = (1, 2, 3), (1, 2, 3, 4)  # letters
FEATURES = 1 + len(BEGINNINGS) + len(ENDINGS) + 3  # F


def word_features(words: Sequence[str], rows: int) -> NDArray[np.int64]:
    """(T, F): the numbers of each word's features, from 1 to `rows` - 1."""
    lower = ["", *(word.lower() for word in words), ""]
    texts = (
        feature
        for i, word in enumerate(words, start=1)
        for feature in (*_of_word(lower[i], shape(word)), f"before {lower[i - 1]}", f"after {lower[i + 1]}")
    )
    numbers = [1 + zlib.crc32(text.encode("utf-8", "surrogatepass")) % (rows - 1) for text in texts]
    return np.array(numbers, dtype=np.int64).reshape(len(words), FEATURES)


def _of_word(word: str, shape: str) -> Iterator[str]:
    yield f"word {word}"
    yield from (f"beginning {n} {word[:n]}" for n in BEGINNINGS)
    yield from (f"ending {n} {word[-n:]}" for n in ENDINGS)
    yield f"shape {shape}"


def shape(word: str) -> str:
    """Letters as X, x and d for digits, with runs cut to two.

    >>> shape("McDonald's"), shape("1992"), shape("U.S.")
    ("XxXxx'x", 'dd', 'X.X.')
    """
    kinds: list[str] = []
    for letter in word:
        kind = "X" if letter.isupper() else "d" if letter.isdigit() else "x" if letter.isalpha() else letter
        if kinds[-2:] != [kind, kind]:
            kinds.append(kind)
    return "".join(kinds)
