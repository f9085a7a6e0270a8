"""Metrics of model outputs: pure functions on lists and arrays.

text        BLEU and chrF, always by sacrebleu and with its signature; CIDEr of captions; exact match
language    perplexity, bits per character
labels      accuracy, macro F1, confusion matrix, token accuracy
words       rank correlation with human similarity ratings, accuracy on analogies
"""

from __future__ import annotations

import math
import re
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
Ngram = tuple[str, ...]
Vectors = NDArray[np.floating[Any]]  # (N, D): one row per word


@dataclass(frozen=True)
class Score:
    """A metric's value, and a signature of how it was measured: for BLEU and chrF sacrebleu's."""

    name: str
    value: float
    signature: str


CIDER_NGRAMS, CIDER_SIGMA = 4, 6.0  # words of the longest n-gram; how many words too long or too short matter
_WORD = re.compile(r"\w+(?:['’-]\w+)*")

LOWER_IS_BETTER = frozenset({"perplexity", "bits per character"})

# --- text ---


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str = "13a"
) -> Score:
    """Corpus BLEU with one reference per hypothesis."""
    return caption_bleu(hypotheses, [[reference] for reference in references], lowercase=lowercase, tokenize=tokenize)


def caption_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False, tokenize: str = "13a"
) -> Score:
    """Corpus BLEU with any number of references per hypothesis."""
    from sacrebleu.metrics.bleu import BLEU

    return _corpus_score(BLEU(lowercase=lowercase, tokenize=tokenize), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Corpus chrF, the F-score of character n-grams, with one reference per hypothesis."""
    from sacrebleu.metrics.chrf import CHRF

    return _corpus_score(CHRF(lowercase=lowercase), hypotheses, [[reference] for reference in references])


def cider(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """CIDEr-D (Vedantam et al. 2015): how much captions share with those that people wrote for the same image.

        g_n(s)        counts of the n-grams of s, each times log(images / images whose references have it)
        CIDEr_n(h, r) = e^(-(|h| - |r|)² / 2σ²) · min(g_n(h), g_n(r)) · g_n(r) / (‖g_n(h)‖ ‖g_n(r)‖)

    The mean over n = 1 … 4, the references of an image and all images, times 10. Words count, in lower case.
    """
    _check_references(hypotheses, references)
    said, known = [_ngrams(each) for each in hypotheses], [[_ngrams(each) for each in of] for of in references]
    images = Counter(ngram for of in known for ngram in set().union(*of))
    weights = {ngram: math.log(len(known)) - math.log(count) for ngram, count in images.items()}
    rare = math.log(len(known))  # of an n-gram that no reference has
    total = 0.0
    for mine, of in zip(said, known, strict=True):
        total += sum(_consensus(mine, theirs, weights, rare) for theirs in of) / len(of)
    return Score(
        "CIDEr", 10 * total / len(known), f"CIDEr-D|n:{CIDER_NGRAMS}|sigma:{CIDER_SIGMA:g}|images:{len(known)}"
    )


def _ngrams(sentence: str) -> Counter[Ngram]:
    """How often each run of up to four words occurs."""
    words = _WORD.findall(sentence.lower())
    runs = (words[start : start + n] for n in range(1, CIDER_NGRAMS + 1) for start in range(len(words) - n + 1))
    return Counter(map(tuple, runs))


def _consensus(mine: Counter[Ngram], theirs: Counter[Ngram], weights: Mapping[Ngram, float], rare: float) -> float:
    """The mean of CIDEr_n over n for one caption and one reference."""
    shared, norms = [0.0] * CIDER_NGRAMS, [[0.0, 0.0] for _ in range(CIDER_NGRAMS)]
    for ngram in mine.keys() | theirs.keys():
        n, weight = len(ngram) - 1, weights.get(ngram, rare)
        shared[n] += weight**2 * min(mine[ngram], theirs[ngram]) * theirs[ngram]
        norms[n][0] += (weight * mine[ngram]) ** 2
        norms[n][1] += (weight * theirs[ngram]) ** 2
    longer = _length(mine) - _length(theirs)
    cosines = (dot / math.sqrt(one * other) if dot else 0.0 for dot, (one, other) in zip(shared, norms, strict=True))
    return math.exp(-(longer**2) / (2 * CIDER_SIGMA**2)) * sum(cosines) / CIDER_NGRAMS


def _length(ngrams: Counter[Ngram]) -> int:
    """The number of words."""
    return sum(count for ngram, count in ngrams.items() if len(ngram) == 1)


def _corpus_score(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """sacrebleu takes one list of all first references, one of all second references, and so on."""
    _check_references(hypotheses, references)
    score = metric.corpus_score(list(hypotheses), [list(stream) for stream in zip_longest(*references)])
    return Score(score.name, float(score.score), str(metric.get_signature()))


def _check_references(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    _check_pairs(hypotheses, references)
    for number, of_sentence in enumerate(references, start=1):
        if not of_sentence:
            raise DataError(f"sentence {number} has no reference to compare with")


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Share of hypotheses equal to their reference, up to surrounding white space."""
    right = accuracy([text.strip() for text in hypotheses], [text.strip() for text in references])
    return Score("exact match", right.value, right.signature)


# --- language ---


def perplexity(loss: float) -> Score:
    """exp(mean loss per token)."""
    return Score("perplexity", math.exp(loss) if loss < 700 else math.inf, "per:token")


def bits_per_character(loss: float, tokens: int, characters: int) -> Score:
    """Mean loss per token as bits per character: unlike perplexity, comparable between tokenizers."""
    if characters < 1:
        raise DataError(f"a text of {characters} characters has no bits per character")
    return Score("bits per character", loss / math.log(2) * tokens / characters, f"characters:{characters}")


# --- labels ---


def accuracy(predicted: Sequence[Hashable], references: Sequence[Hashable]) -> Score:
    """Share of correct labels."""
    _check_pairs(predicted, references)
    right = sum(p == r for p, r in zip(predicted, references, strict=True))
    return Score("accuracy", right / len(references), f"n:{len(references)}")


def token_accuracy(predicted: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]]) -> Score:
    """Share of correct labels over all tokens of all sentences."""
    _check_pairs(predicted, references)
    for number, (p, r) in enumerate(zip(predicted, references, strict=True), start=1):
        if len(p) != len(r):
            raise DataError(f"sentence {number} has {len(r)} tokens and {len(p)} predicted labels")
    right = accuracy([label for row in predicted for label in row], [label for row in references for label in row])
    return Score("token accuracy", right.value, right.signature)


def macro_f1(predicted: Sequence[Hashable], references: Sequence[Hashable]) -> Score:
    """Mean F1 over labels, 2 · hits / (predicted + references); a rare label counts as much as a frequent one.

    The labels are those that occur among predictions or references.
    """
    _check_pairs(predicted, references)
    hits = Counter(r for p, r in zip(predicted, references, strict=True) if p == r)
    seen = Counter(predicted) + Counter(references)
    mean = sum(2 * hits[label] / seen[label] for label in seen) / len(seen)
    return Score("macro F1", mean, f"n:{len(references)}|labels:{len(seen)}")


def confusion_matrix(
    predicted: Sequence[Label], references: Sequence[Label], labels: Sequence[Label]
) -> list[list[int]]:
    """Counts of reference label (row) against predicted label (column), both in the order of `labels`."""
    _check_pairs(predicted, references)
    unknown = {*predicted, *references} - {*labels}
    if unknown:
        raise DataError(f"label {min(map(str, unknown))} is not one of {', '.join(map(str, labels))}")
    counts = Counter(zip(references, predicted, strict=True))
    return [[counts[row, column] for column in labels] for row in labels]


def _check_pairs(predicted: Sequence[object], references: Sequence[object]) -> None:
    if len(predicted) != len(references):
        raise DataError(f"{len(predicted)} predictions cannot be compared with {len(references)} references")
    if not predicted:
        raise DataError("there is nothing to measure: no predictions")


# --- words ---


@dataclass(frozen=True)
class Similarity:
    """Agreement of word-vector similarity with human ratings."""

    correlation: float  # Spearman's, in [-1, 1]
    used: int  # word pairs
    skipped: int  # word pairs with an unknown word


@dataclass(frozen=True)
class Analogies:
    """Results of analogy questions `a is to b as c is to …`."""

    sections: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # correct, total
    skipped: int = 0  # questions with an unknown word

    @property
    def accuracy(self) -> float:
        """Share of correct answers over all sections."""
        return sum(correct for correct, _ in self.sections.values()) / sum(total for _, total in self.sections.values())


@dataclass(frozen=True)
class Question:
    """An analogy: first is to second as third is to fourth."""

    section: str
    words: tuple[str, str, str, str]


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Rank correlation; equal values share their mean rank. NaN if either input is constant."""
    _check_pairs(x, y)
    deviations = [ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y))]
    spread = math.prod(float(np.sqrt((d**2).sum())) for d in deviations)
    return float(deviations[0] @ deviations[1]) / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks from 1 for the smallest; ties share their mean rank."""
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def word_similarity(vectors: Vectors, words: Sequence[str], pairs: Sequence[tuple[str, str, float]]) -> Similarity:
    """Spearman's correlation between cosine similarity and human ratings of word pairs; case-insensitive."""
    unit, rows = _unit_rows(vectors, words)
    known = [(rows[a], rows[b], rating) for a, b, rating in _lowercased(pairs) if a in rows and b in rows]
    if not known:
        raise DataError(f"none of the {len(pairs)} word pairs is in the vocabulary of {len(words)} words")
    cosines = [float(unit[a] @ unit[b]) for a, b, _ in known]
    return Similarity(spearman(cosines, [rating for *_, rating in known]), len(known), len(pairs) - len(known))


def solve_analogies(vectors: Vectors, words: Sequence[str], questions: Sequence[Question]) -> Analogies:
    """A question is solved if the word nearest to second - first + third, these three excluded, is the fourth.

    Case-insensitive.
    """
    unit, rows = _unit_rows(vectors, words)
    known = [(q.section, [rows.get(word.casefold(), -1) for word in q.words]) for q in questions]
    known = [(section, indices) for section, indices in known if min(indices) >= 0]
    if not known:
        raise DataError(f"none of the {len(questions)} questions is in the vocabulary of {len(words)} words")
    sections: dict[str, tuple[int, int]] = {}
    for (section, _), correct in zip(known, _solved(unit, np.array([indices for _, indices in known])), strict=True):
        before = sections.get(section, (0, 0))
        sections[section] = (before[0] + correct, before[1] + 1)
    return Analogies(sections, len(questions) - len(known))


def _solved(unit: Vectors, questions: NDArray[np.int64]) -> Iterator[int]:
    """questions (Q, 4) -> 1 for each solved one, else 0; in chunks, since each is compared with all N words."""
    chunk = max(1, 2**24 // len(unit))
    for first in range(0, len(questions), chunk):
        a, b, c, d = questions[first : first + chunk].T
        scores = (unit[b] - unit[a] + unit[c]) @ unit.T  # (chunk, N)
        for given in (a, b, c):
            scores[np.arange(len(given)), given] = -np.inf
        yield from (scores.argmax(1) == d).astype(int).tolist()


def _unit_rows(vectors: Vectors, words: Sequence[str]) -> tuple[Vectors, dict[str, int]]:
    """Unit vectors, and the row of each lower-cased word; of words that differ only in case the first is kept."""
    if len(vectors) != len(words):
        raise DataError(f"there are {len(vectors)} vectors for {len(words)} words")
    first: dict[str, int] = {}
    for row, word in enumerate(words):
        first.setdefault(word.casefold(), row)
    kept = vectors[list(first.values())]
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return kept / np.maximum(lengths, 1e-12), {word: row for row, word in enumerate(first)}


def _lowercased(pairs: Iterable[tuple[str, str, float]]) -> Iterator[tuple[str, str, float]]:
    return ((a.casefold(), b.casefold(), rating) for a, b, rating in pairs)


def read_questions(path: str | Path) -> list[Question]:
    """Read analogies in the format of Google's questions-words.txt: four words per line, under lines `: section`."""
    section, questions = "", []
    for number, line in _lines(path):
        if line.startswith(":"):
            section = line[1:].strip()
            continue
        match line.split():
            case [a, b, c, d]:
                questions.append(Question(section, (a, b, c, d)))
            case words:
                raise DataError(f"has {len(words)} words where 4 are expected", path=path, line=number)
    return questions


def read_word_pairs(path: str | Path) -> list[tuple[str, str, float]]:
    """Read two words and a rating per line, separated by tabs or spaces; lines that begin with # are comments."""
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
    """(line number, stripped line) of every non-blank line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise DataError(f"cannot be read: {reason}", path=path) from None
    return ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
