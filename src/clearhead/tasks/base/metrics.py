"""Metrics: how good is what a model says. Pure functions on lists; nothing here knows a model.

text        BLEU and chrF, always by sacrebleu and with its signature; exact match
language    perplexity, bits per character
labels      accuracy, macro F1, confusion matrix, token accuracy
words       rank correlation with human similarity, share of analogies solved
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError

Label = TypeVar("Label", bound=Hashable)
Vectors = NDArray[np.floating[Any]]  # (N, D): a row for each word


@dataclass(frozen=True)
class Score:
    """A number, and how exactly it was measured: for BLEU and chrF sacrebleu's signature."""

    name: str
    value: float
    signature: str


# --- text ---


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str = "13a"
) -> Score:
    """BLEU of a corpus with one reference for each hypothesis."""
    return caption_bleu(hypotheses, [[reference] for reference in references], lowercase=lowercase, tokenize=tokenize)


def caption_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False, tokenize: str = "13a"
) -> Score:
    """BLEU of a corpus with any number of references for each hypothesis."""
    from sacrebleu.metrics.bleu import BLEU

    return _corpus_score(BLEU(lowercase=lowercase, tokenize=tokenize), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """chrF, the F-score of character n-grams, of a corpus with one reference for each hypothesis."""
    from sacrebleu.metrics.chrf import CHRF

    return _corpus_score(CHRF(lowercase=lowercase), hypotheses, [[reference] for reference in references])


def _corpus_score(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """sacrebleu wants the first reference of every sentence, then the second of every sentence, and so on."""
    _check_pairs(hypotheses, references)
    for number, several in enumerate(references, start=1):
        if not several:
            raise DataError(f"sentence {number} has no reference to compare with")
    score = metric.corpus_score(list(hypotheses), [list(stream) for stream in zip_longest(*references)])
    return Score(score.name, float(score.score), str(metric.get_signature()))


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The share of answers that are the reference, space around them aside."""
    right = accuracy([text.strip() for text in hypotheses], [text.strip() for text in references])
    return Score("exact match", right.value, right.signature)


# --- language ---


def perplexity(loss: float) -> Score:
    """exp of the mean loss of a token: among how many equally likely words the model hesitates."""
    return Score("perplexity", math.exp(loss) if loss < 700 else math.inf, "per:token")


def bits_per_character(loss: float, tokens: int, characters: int) -> Score:
    """The mean loss of a token as bits for each character: comparable between vocabularies, as perplexity is not."""
    if characters < 1:
        raise DataError(f"a text of {characters} characters has no bits per character")
    return Score("bits per character", loss / math.log(2) * tokens / characters, f"characters:{characters}")


# --- labels ---


def accuracy(predicted: Sequence[Hashable], wanted: Sequence[Hashable]) -> Score:
    """The share of right labels."""
    _check_pairs(predicted, wanted)
    right = sum(p == w for p, w in zip(predicted, wanted, strict=True))
    return Score("accuracy", right / len(wanted), f"n:{len(wanted)}")


def token_accuracy(predicted: Sequence[Sequence[Hashable]], wanted: Sequence[Sequence[Hashable]]) -> Score:
    """The share of right labels over all tokens of all sentences."""
    _check_pairs(predicted, wanted)
    for number, (p, w) in enumerate(zip(predicted, wanted, strict=True), start=1):
        if len(p) != len(w):
            raise DataError(f"sentence {number} has {len(w)} tokens and {len(p)} predicted labels")
    right = accuracy([label for row in predicted for label in row], [label for row in wanted for label in row])
    return Score("token accuracy", right.value, right.signature)


def macro_f1(predicted: Sequence[Hashable], wanted: Sequence[Hashable]) -> Score:
    """The mean over labels of 2 · hits / (predicted + wanted): a rare label counts as much as a frequent one.

    The labels are those that occur on either side: one that was neither wanted nor predicted says nothing.
    """
    _check_pairs(predicted, wanted)
    hits = Counter(w for p, w in zip(predicted, wanted, strict=True) if p == w)
    seen = Counter(predicted) + Counter(wanted)
    mean = sum(2 * hits[label] / seen[label] for label in seen) / len(seen)
    return Score("macro F1", mean, f"n:{len(wanted)}|labels:{len(seen)}")


def confusion_matrix(predicted: Sequence[Label], wanted: Sequence[Label], labels: Sequence[Label]) -> list[list[int]]:
    """How often a label (row) was predicted as another (column), both in the order of `labels`."""
    _check_pairs(predicted, wanted)
    unknown = {*predicted, *wanted} - {*labels}
    if unknown:
        raise DataError(f"label {min(map(str, unknown))} is not one of {', '.join(map(str, labels))}")
    counts = Counter(zip(wanted, predicted, strict=True))
    return [[counts[row, column] for column in labels] for row in labels]


def _check_pairs(predicted: Sequence[object], wanted: Sequence[object]) -> None:
    if len(predicted) != len(wanted):
        raise DataError(f"{len(predicted)} predictions cannot be compared with {len(wanted)} references")
    if not predicted:
        raise DataError("there is nothing to measure: no predictions")


# --- words ---


@dataclass(frozen=True)
class Similarity:
    """How well the closeness of word vectors agrees with that felt by people."""

    correlation: float  # Spearman's, in [-1, 1]
    used: int  # pairs of known words
    skipped: int  # pairs with an unknown word


@dataclass(frozen=True)
class Analogies:
    """How many questions `a is to b as c is to …` were solved."""

    sections: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # right, asked
    skipped: int = 0  # questions with an unknown word

    @property
    def accuracy(self) -> float:
        """The share of right answers over all sections."""
        return sum(right for right, _ in self.sections.values()) / sum(asked for _, asked in self.sections.values())


@dataclass(frozen=True)
class Question:
    """first is to second as third is to fourth."""

    section: str
    words: tuple[str, str, str, str]


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """The correlation of the ranks; equal values share their mean rank. NaN if either does not vary."""
    _check_pairs(x, y)
    deviations = [ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y))]
    spread = math.prod(float(np.sqrt((d**2).sum())) for d in deviations)
    return float(deviations[0] @ deviations[1]) / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """1 for the smallest; (3 + 4) / 2 for two that share the third and fourth place."""
    _, place, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def word_similarity(vectors: Vectors, words: Sequence[str], pairs: Sequence[tuple[str, str, float]]) -> Similarity:
    """Spearman's correlation between the cosine of two words' vectors and the given number; capitals do not count."""
    unit, rows = _unit_rows(vectors, words)
    known = [(rows[a], rows[b], number) for a, b, number in _folded(pairs) if a in rows and b in rows]
    if not known:
        raise DataError(f"none of the {len(pairs)} word pairs is in the vocabulary of {len(words)} words")
    cosines = [float(unit[a] @ unit[b]) for a, b, _ in known]
    return Similarity(spearman(cosines, [number for *_, number in known]), len(known), len(pairs) - len(known))


def solve_analogies(vectors: Vectors, words: Sequence[str], questions: Sequence[Question]) -> Analogies:
    """The word nearest to second - first + third, these three aside, should be the fourth; capitals do not count."""
    unit, rows = _unit_rows(vectors, words)
    known = [(q.section, [rows.get(word.casefold(), -1) for word in q.words]) for q in questions]
    known = [(section, indices) for section, indices in known if min(indices) >= 0]
    if not known:
        raise DataError(f"none of the {len(questions)} questions is in the vocabulary of {len(words)} words")
    sections: dict[str, tuple[int, int]] = {}
    for (section, _), right in zip(known, _solved(unit, np.array([indices for _, indices in known])), strict=True):
        before = sections.get(section, (0, 0))
        sections[section] = (before[0] + right, before[1] + 1)
    return Analogies(sections, len(questions) - len(known))


def _solved(unit: Vectors, questions: NDArray[np.int64]) -> Iterator[int]:
    """questions (Q, 4) -> 1 for each that is solved, else 0; some at a time, since each meets all N words."""
    some = max(1, 2**24 // len(unit))
    for first in range(0, len(questions), some):
        a, b, c, d = questions[first : first + some].T
        scores = (unit[b] - unit[a] + unit[c]) @ unit.T  # (some, N)
        for asked in (a, b, c):
            scores[np.arange(len(asked)), asked] = -np.inf
        yield from (scores.argmax(1) == d).astype(int).tolist()


def _unit_rows(vectors: Vectors, words: Sequence[str]) -> tuple[Vectors, dict[str, int]]:
    """Vectors of length 1, and the row of each word; of words that differ in capitals only the first stays."""
    if len(vectors) != len(words):
        raise DataError(f"there are {len(vectors)} vectors for {len(words)} words")
    first: dict[str, int] = {}
    for row, word in enumerate(words):
        first.setdefault(word.casefold(), row)
    kept = vectors[list(first.values())]
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return kept / np.maximum(lengths, 1e-12), {word: row for row, word in enumerate(first)}


def _folded(pairs: Iterable[tuple[str, str, float]]) -> Iterator[tuple[str, str, float]]:
    return ((a.casefold(), b.casefold(), number) for a, b, number in pairs)


def read_questions(path: str | Path) -> list[Question]:
    """Analogies as Google wrote them: four words on a line, under lines `: section`."""
    section, questions = "", []
    for number, line in _lines(path):
        if line.startswith(":"):
            section = line[1:].strip()
            continue
        match line.split():
            case [a, b, c, d]:
                questions.append(Question(section, (a, b, c, d)))
            case others:
                raise DataError(f"has {len(others)} words where 4 are expected", path=path, line=number)
    return questions


def read_word_pairs(path: str | Path) -> list[tuple[str, str, float]]:
    """Two words and a number on a line, apart by tabs or spaces; lines that begin with # are comments."""
    pairs = []
    for number, line in _lines(path):
        if line.startswith("#"):
            continue
        try:
            a, b, value = line.split()
            pairs.append((a, b, float(value)))
        except ValueError:
            raise DataError("is not two words and a number", path=path, line=number) from None
    return pairs


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """(number, line) of every line that is not blank."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise DataError(f"cannot be read: {reason}", path=path) from None
    return ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
