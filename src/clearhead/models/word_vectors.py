"""Asking word vectors: which words are near, and what king - man + woman is.

dot       u · v
cosine    u · v / (|u| |v|): the lengths of the vectors do not count

V words, D width
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError, TextError, nearest

Vectors = NDArray[np.floating[Any]]


def as_given(vectors: Vectors) -> Vectors:
    """Dot products compare vectors as they are."""
    return vectors


def unit_length(vectors: Vectors) -> Vectors:
    """The cosine is the dot product of vectors of length 1; a vector of zeros stays one."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)


MEASURES: dict[str, Callable[[Vectors], Vectors]] = {"cosine": unit_length, "dot": as_given}


def neighbours(
    vectors: ArrayLike | Tensor, words: Sequence[str], word: str, count: int = 10, measure: str = "cosine"
) -> list[tuple[str, float]]:
    """The words nearest to a word, best first, and how near; the word itself is left out."""
    table = _measured(vectors, words, measure)
    (row,) = _rows(words, [word])
    return _best(table, words, table[row], count, without=[row])


def analogy(
    vectors: ArrayLike | Tensor, words: Sequence[str], a: str, b: str, c: str, count: int = 10, measure: str = "cosine"
) -> list[tuple[str, float]]:
    """The words nearest to v_a - v_b + v_c: king - man + woman gives queen. The three themselves are left out."""
    table = _measured(vectors, words, measure)
    rows = _rows(words, [a, b, c])
    wanted = table[rows[0]] - table[rows[1]] + table[rows[2]]
    return _best(table, words, MEASURES[measure](wanted), count, without=rows)


def _measured(vectors: ArrayLike | Tensor, words: Sequence[str], measure: str) -> Vectors:
    """(V, D), such that a dot product is the measure."""
    if measure not in MEASURES:
        raise ConfigError(f"unknown measure {measure}; {nearest(measure, MEASURES)}")
    table = np.asarray(vectors.detach().cpu() if isinstance(vectors, Tensor) else vectors)
    if table.ndim != 2 or len(table) != len(words):
        raise ShapeError(f"{len(words)} words do not fit vectors of shape {table.shape}")
    return MEASURES[measure](table)


def _rows(words: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where each wanted word stands, or which word was meant."""
    rows = {word: row for row, word in enumerate(words)}
    for word in wanted:
        if word not in rows:
            close = difflib.get_close_matches(word, words, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TextError(f"{word!r} is not among the {len(words)} words of this model{hint}")
    return [rows[word] for word in wanted]


def _best(
    table: Vectors, words: Sequence[str], wanted: Vectors, count: int, without: Sequence[int]
) -> list[tuple[str, float]]:
    scores = table @ wanted  # (V,)
    order = [int(row) for row in np.argsort(-scores, kind="stable") if row not in without]
    return [(words[row], float(scores[row])) for row in order[:count]]
