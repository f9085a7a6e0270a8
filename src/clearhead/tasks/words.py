"""Word vectors: skip-gram on running text, with words of noise or the full softmax.

As in word2vec, rare words, marks and a share of the frequent words are taken out first, so that a window reaches
further; then a word is paired with all words at most r places away, r drawn from 1 .. window for each word. No pair
is ever written down: in a block of C neighbouring words the scores of all centres with all words around are one small
matrix product, and a mask says which of them are pairs. The words of noise are the same for the whole batch, so that
each distinct centre meets them once, and its loss counts as often as it has pairs. A table of vectors is looked up
once for each distinct word, and the blocks take their rows from what was found: the gradient of a lookup is as large as
the whole table, so there is one for each table and not one for each use.

    R rows, T tokens, M words left of them, G blocks, C centres in a block, S = C + 2 · window words around them,
    W distinct centres, U distinct contexts and words of noise, N words of noise, V vocabulary, D width
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import Config, Section
from clearhead.data.windows import TokenFile, Windows, write_tokens
from clearhead.errors import ConfigError, DataError, ProbeError
from clearhead.look.inputs import PreparedInput
from clearhead.models.word2vec import SkipGram, analogy, neighbours
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.metrics import Score, read_questions, read_word_pairs, solve_analogies, word_similarity
from clearhead.tasks.base.predictor import Predictor
from clearhead.tasks.base.task import Batch, Examples, Task, Workspace, read_dataset, train_tokenizer
from clearhead.text import SPECIALS, Tokenizer

if TYPE_CHECKING:
    from clearhead.look.look import Look

ROW = 1024  # most tokens in a row of a batch
BLOCK = 32  # centres whose scores are one matrix product
NOISE = 512  # words of noise that a batch shares
POWER = 0.75  # noise words are drawn from frequency ** POWER
SOFTMAX = 5000  # most words of a full softmax
READ = 1 << 20  # tokens counted at once
SHOWN = (30, 60, 120, 240)  # the words of the sample: rank by frequency

Ids = NDArray[np.int64]
Shares = NDArray[np.float64]
Visible = NDArray[np.bool_]
ListedT = TypeVar("ListedT")


class WordsModel(Section):
    """Word vectors: skip-gram."""

    dim: int = Field(100, ge=1, description="numbers in a word vector")
    window: int = Field(5, ge=1, description="words on each side that count as context")
    negatives: int = Field(5, ge=0, description="noise words for each real one; 0 = full softmax")
    subsample: float = Field(1e-3, ge=0, description="frequent words above this share are thinned out; 0 = never")
    min_count: int = Field(5, ge=1, description="rarer words are left out")


class Words(Task[WordsModel]):
    """A vector for each word, from which the words around it can be predicted."""

    name = "words"
    title = "Word vectors"
    data_kind = "text"
    model_type = WordsModel
    rank = 6
    sizes = {"tiny": {"dim": 50}, "small": {"dim": 100}, "base": {"dim": 300}}
    defaults = {
        "tokenizer": {"kind": "word", "lowercase": True},
        "train": {"learning_rate": 0.025, "schedule": "linear"},
    }
    gives_word_vectors = True
    takes_word_vectors = False
    tokenizer: Tokenizer

    @classmethod
    def build(cls, model: WordsModel, sizes: Sizes) -> nn.Module:
        return SkipGram(sizes.vocabulary, model.dim)

    def __init__(self, config: Config[WordsModel], workspace: Workspace):
        self.config, self.model = config, config.model
        _check(config)
        dataset = read_dataset(config, "text", workspace)
        self.tokenizer = _vocabulary(config, workspace, dataset.train)
        self.train = _tokens(dataset.train, self.tokenizer, workspace, "train")
        self.held_out = _tokens(dataset.validation, self.tokenizer, workspace, "validation")
        self.known = self.tokenizer.word_ids()
        counts = np.zeros(len(self.tokenizer), np.int64)  # (V,): of words only
        counts[self.known] = count_tokens(self.train, len(self.tokenizer))[self.known]
        if not counts.any():
            raise DataError("has none of the words that the model knows", path=config.data.path)
        if not len(self.held_out):
            raise DataError("leaves no text for validation; raise data.validation", path=config.data.path)
        self.kept = kept_shares(counts, self.model.subsample)
        self.noise = np.cumsum(noise_shares(counts))  # (V,)
        self.meta = ModelMeta(Sizes(vocabulary=len(self.tokenizer), pad=self.tokenizer.pad))

    def cursor(self) -> Windows:
        """Rows of running tokens in a new order, from another first token, in each epoch."""
        length = self._length(self.train)
        rows = max(1, self.config.data.batch_tokens // length)
        return Windows(self.train, length=length, batch=rows, seed=self.config.train.seed)

    def batch(self, examples: Examples) -> Batch:
        """Pairs and noise that follow from the seed and the tokens, so that they are the same after a resume."""
        return self._tensors(examples, self.config.train.seed)

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """The sum over all pairs, and how many they are; there is no label to smooth."""
        pairs = batch["pairs"]
        v, u = model.center(batch["distinct"]), model.context(batch["around"])  # (W, D), (U, D)
        scores = F.embedding(batch["centers"], v) @ F.embedding(batch["contexts"], u).mT  # (G, C, S)
        if self.model.negatives:  # -log σ(v·u) - Σ_k log σ(-v·u_k)
            each = F.softplus(-scores)
            noise = v @ F.embedding(batch["noise"], u).T  # (W, N)
            against = F.softplus(noise).mean(-1) * self.model.negatives  # (W,)
        else:  # -log P{b | a}
            each = -scores
            against = model(batch["distinct"]).logsumexp(-1)  # (W,)
        return each.masked_fill(~pairs, 0.0).sum() + batch["times"] @ against, pairs.sum().clamp(min=1)

    def validation(self) -> Iterator[Batch]:
        """All whole rows of the validation text, with the same pairs and noise each time and whatever the seed."""
        length, count = self._length(self.held_out), len(self.held_out)
        rows = max(1, self.config.data.batch_tokens // length)
        whole = np.arange(0, count - length + 1, length)
        for first in range(0, len(whole), rows):
            yield self._tensors(self.held_out.read(whole[first : first + rows], length), seed=0)

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """What people think of words, where $CLEARHEAD_DATA has it; and the neighbours of some frequent words."""
        vectors = model.vectors[self.known].float().cpu().numpy()
        words = self.tokenizer.pieces(self.known)
        asked = [words[rank] for rank in SHOWN if rank < len(words)] or words[:1]
        lines = [f"{word}: {', '.join(near for near, _ in neighbours(vectors, words, word, 6))}" for word in asked]
        return human_scores(vectors, words), "\n".join(lines)

    def _length(self, tokens: TokenFile) -> int:
        """Rows as long as they should be; a short text still has some, so that their borders can move."""
        return min(ROW, max(1, len(tokens) // 8))

    def _tensors(self, rows: Ids, seed: int) -> Batch:
        """(R, T) -> distinct and times (W,), around (U,), and which of these are centers, contexts and noise; pairs."""
        random = np.random.default_rng([seed, zlib.crc32(rows.tobytes())])
        stays = random.random(rows.shape) < self.kept[rows]  # (R, T)
        reach = random.integers(1, self.model.window + 1, int(stays.sum()))  # (M,)
        centers, contexts, pairs = blocks(rows[stays], np.nonzero(stays)[0], reach, self.model.window)
        distinct, (centers,) = numbered_words(centers)
        around, (contexts, noise) = numbered_words(contexts, drawn(self.noise, NOISE, random))
        times = np.bincount(centers.ravel(), weights=pairs.sum(-1).ravel()).astype(np.float32)
        arrays: dict[str, NDArray[Any]] = {"distinct": distinct, "times": times, "around": around}
        arrays |= {"centers": centers, "contexts": contexts, "noise": noise, "pairs": pairs}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


# --- pairs and noise ---


def blocks(words: Ids, rows: Ids, reach: Ids, window: int, size: int = BLOCK) -> tuple[Ids, Ids, Visible]:
    """words, their rows and reaches (M,) -> centres (G, C), the words around (G, S), and which two are a pair."""
    fill = -len(words) % size or (0 if len(words) else size)
    before, after = (window, fill + window)
    around = size + 2 * window
    centers = np.pad(words, (0, fill)).reshape(-1, size)  # (G, C)
    contexts = sliding_window_view(np.pad(words, (before, after)), around)[::size].copy()  # (G, S)
    row = np.pad(rows, (0, fill), constant_values=-1).reshape(-1, size, 1)  # (G, C, 1)
    other = sliding_window_view(np.pad(rows, (before, after), constant_values=-2), around)[::size, None]  # (G, 1, S)
    distance = np.abs(np.arange(size)[:, None] + window - np.arange(around))  # (C, S)
    near = (distance > 0) & (distance <= np.pad(reach, (0, fill)).reshape(-1, size, 1))  # (G, C, S)
    return centers, contexts, near & (row == other)


def numbered_words(*uses: Ids) -> tuple[Ids, list[Ids]]:
    """The distinct words of all uses, and each use with every word replaced by its place among them."""
    distinct, places = np.unique(np.concatenate([use.ravel() for use in uses]), return_inverse=True)
    ends = np.cumsum([use.size for use in uses])[:-1]
    return distinct, [part.reshape(use.shape) for part, use in zip(np.split(places, ends), uses, strict=True)]


def kept_shares(counts: Ids, subsample: float) -> Shares:
    """(V,) -> how likely each occurrence stays: √(t/f) + t/f for a word of frequency f, as word2vec does it."""
    if not subsample:
        return (counts > 0).astype(np.float64)
    ratio = subsample * counts.sum() / np.maximum(counts, 1)  # t / f
    return np.where(counts > 0, np.minimum(np.sqrt(ratio) + ratio, 1.0), 0.0)


def noise_shares(counts: Ids) -> Shares:
    """(V,) -> how likely each word is drawn as noise: rare words more often than they occur."""
    weights = counts.astype(np.float64) ** POWER
    shares: Shares = weights / weights.sum()
    return shares


def drawn(cumulative: Shares, count: int, random: np.random.Generator) -> Ids:
    """(V,) running sums of the shares -> (count,) words."""
    # A word of share 0 is never drawn: where sums are equal, the place is to the right of them all.
    words: Ids = np.searchsorted(cumulative, random.random(count) * cumulative[-1], side="right")
    return words


# --- vocabulary ---


def count_tokens(tokens: TokenFile, size: int) -> Ids:
    """(V,): how often each id occurs."""
    counts = np.zeros(size, np.int64)
    for first in range(0, len(tokens), READ):
        some = tokens.read(np.array([first]), min(READ, len(tokens) - first))  # (1, some)
        counts += np.bincount(some[0], minlength=size)
    return counts


def _vocabulary(config: Config[WordsModel], workspace: Workspace, texts: Any) -> Tokenizer:
    """The run's vocabulary, or a new one without rare words; words are numbered from frequent to rare."""
    whole = train_tokenizer(config, workspace, texts)
    if workspace.tokenizer is not None:
        return whole
    least, counts = config.model.min_count, count_tokens(_tokens(texts, whole, workspace, "train"), len(whole))
    if (counts[whole.word_ids()] >= least).sum() < 2:
        raise DataError(
            f"has no two words that occur {least} times; lower model.min_count or add text", path=config.data.path
        )
    frequent = len(SPECIALS) + int((counts[len(SPECIALS) :] >= least).sum())
    if frequent == len(whole):
        return whole
    return Tokenizer.train("word", texts, size=frequent, lowercase=config.tokenizer.lowercase)


def _tokens(blocks: Any, vocabulary: Tokenizer, workspace: Workspace, part: str) -> TokenFile:
    """The token file of a part; that of a run whose vocabulary is settled is already there."""
    path = workspace.folder / f"{part}.npy"
    settled = workspace.tokenizer is not None and path.exists()
    return TokenFile.open(path) if settled else write_tokens(blocks, vocabulary, path)


def _check(config: Config[WordsModel]) -> None:
    """Refuse settings that cannot give word vectors before any text is read."""
    kind, size = config.tokenizer.kind, config.tokenizer.size
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("word vectors are trained by one process; start it without torchrun")
    if kind != "word":
        raise ConfigError(f"tokenizer.kind={kind} does not cut text into words; word vectors need tokenizer.kind=word")
    if not config.model.negatives and size > SOFTMAX:
        raise ConfigError(
            f"model.negatives=0 compares each word with all {size} others, which is slow above {SOFTMAX}; "
            f"set tokenizer.size={SOFTMAX} or model.negatives=5"
        )


# --- what people think ---


def human_scores(vectors: NDArray[Any], words: list[str]) -> tuple[Score, ...]:
    """Word similarity and analogies, of the files that are there and the words that are known."""
    folder = Path(os.environ.get("CLEARHEAD_DATA", "")) / "word2vec"
    found = []
    if (path := folder / "wordsim353.tsv").is_file():
        pairs = _read_once(read_word_pairs, path, path.stat().st_mtime_ns)
        with suppress(DataError):  # none of its words is known
            alike = word_similarity(vectors, words, pairs)
            signature = f"spearman|used:{alike.used}|skipped:{alike.skipped}"
            found.append(Score("WordSim-353", alike.correlation, signature))
    if (path := folder / "questions-words.txt").is_file():
        questions = _read_once(read_questions, path, path.stat().st_mtime_ns)
        with suppress(DataError):
            solved = solve_analogies(vectors, words, questions)
            asked = sum(count for _, count in solved.sections.values())
            found.append(Score("analogies", solved.accuracy, f"asked:{asked}|skipped:{solved.skipped}"))
    return tuple(score for score in found if math.isfinite(score.value))


@lru_cache(maxsize=2)
def _read_once(read: Callable[[Path], list[ListedT]], path: Path, _written: int) -> list[ListedT]:
    """The lines of a list, which every evaluation asks for."""
    return read(path)


class WordVectors(Predictor, task=Words):
    """Answers questions about words by their vectors."""

    config: Config[WordsModel]
    verb = "words"
    usage = "neighbours WORD"
    reads = "words"

    @property
    def description(self) -> str:
        return "a table of word vectors"

    def neighbours(self, word: str, count: int = 10, measure: str = "cosine") -> list[tuple[str, float]]:
        """The words nearest to a word, best first, and how near."""
        vectors, words = self.vectors()
        return neighbours(vectors, words, self._folded(word), count, measure)

    def analogy(self, a: str, b: str, c: str, count: int = 10, measure: str = "cosine") -> list[tuple[str, float]]:
        """The words nearest to a - b + c: king - man + woman."""
        vectors, words = self.vectors()
        a, b, c = map(self._folded, (a, b, c))
        return analogy(vectors, words, a, b, c, count, measure)

    def vectors(self) -> tuple[Tensor, list[str]]:
        """(V, D), and the word of each row; a table that was imported is used whole, punctuation too."""
        ids = self._imported_ids() if self.tokenizer.config else self.tokenizer.word_ids()
        return self.token_vectors(torch.tensor(ids, dtype=torch.int64)), self.tokenizer.pieces(ids)

    def _imported_ids(self) -> list[int]:
        tokens = self.tokenizer
        special = {tokens.pad, tokens.unknown, tokens.start, tokens.stop, tokens.mask, tokens.cls}
        return [number for number in range(len(tokens)) if number not in special]

    def _folded(self, word: str) -> str:
        """A word as the table has it: as it is written, or else in small letters."""
        word = word.strip()
        known = self.tokenizer.id(word) != self.tokenizer.unknown
        return word if known or not self.config.tokenizer.lowercase else word.lower()

    def look(self, item: Any, target: str | None = None, *, generate: bool = False, **settings: Any) -> Look:
        raise ProbeError(f"{self.name} has one vector for each word and no attention; ask it for neighbours")

    def prepare(self, item: str) -> PreparedInput:
        ids = self.tokenizer.encode(item)
        return PreparedInput((torch.tensor([ids]),), encoder=self.token_strings(ids), text=item)

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"found": [{"word": word, "near": near} for word, near in self.neighbours(item)]} for item in items]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return ", ".join(word for word, _ in self.neighbours(item))

    def token_vectors(self, inputs: Tensor) -> Tensor:
        table: Tensor = self.network.vectors  # type: ignore[assignment]
        return table[inputs]
