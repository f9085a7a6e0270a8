"""`clearhead bench words`: skip-gram with negative sampling, against gensim's Word2Vec, on the same words.

Both train on 17 books of Project Gutenberg with the same settings: gensim gets the words that our task keeps, as lists,
and one worker per core. The same functions score both sets of vectors. Only training is timed.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.bench.measure import Measurement
from clearhead.config import AnyConfig
from clearhead.errors import DataError
from clearhead.run import Run
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.task import Task
from clearhead.tasks.words import ROW, Words, human_scores
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import make_trainer

EPOCHS = 5
LAST_RATE = 1e-4  # end of gensim's linear schedule; ours ends at 0
ROUNDS = 3
RATIO = 0.25  # limit of words per second, ours / gensim
POINTS = -2.0  # limit of scores, ours - gensim
QUESTIONS = ("wordsim353.tsv", "questions-words.txt")

SPEED = "training speed"
UNITS = {SPEED: "words/s", "WordSim-353": "points", "analogies": "%"}

SETTINGS = (
    "data.path=gutenberg",
    "data.kind=text",
    "data.validation=0.01",
    "data.batch_tokens=4096",
    "tokenizer.size=100000",
    "model.dim=100",
    "model.window=5",
    "model.negatives=5",
    "model.subsample=0.001",
    "model.min_count=5",
    "train.learning_rate=0.025",
    "train.schedule=linear",
    "train.warmup=0",
    "train.evaluate_every=1000000",
    "train.checkpoint_every=1000000",
)


@dataclass(frozen=True)
class Learned:
    """The result of one training run."""

    words_per_second: float
    scores: dict[str, float]  # WordSim-353: correlation × 100; analogies: per cent


def run(peers: bool) -> Iterator[Measurement]:
    """Train ours, then gensim's, several times with different seeds; all results come at the end."""
    check_questions()
    ours, theirs = [], []
    for seed in range(1, ROUNDS + 1):
        with TemporaryDirectory() as folder:
            trainer = our_trainer(Path(folder), seed)
            lists = word_lists(trainer.task)
            ours.append(train_ours(trainer, lists))
        if peers:
            theirs.append(train_gensim(lists, trainer.task.config))
    yield from results(ours, theirs)


def results(ours: Sequence[Learned], theirs: Sequence[Learned]) -> Iterator[Measurement]:
    """Medians over the rounds of speed and scores, and how the two compare."""
    for name, rounds in (("clearhead", ours), ("gensim", theirs)):
        for what, value in _medians(rounds).items():
            yield Measurement(
                f"{name}: {what}", value, UNITS[what], None, {"rounds": [asdict(each) for each in rounds]}
            )
    if theirs:
        mine, peer = _medians(ours), _medians(theirs)
        yield Measurement(f"{SPEED}, clearhead / gensim", mine.pop(SPEED) / peer[SPEED], "×", RATIO, bound="at least")
        for what, value in mine.items():
            yield Measurement(f"{what}, clearhead - gensim", value - peer[what], "points", POINTS, bound="at least")


def _medians(rounds: Sequence[Learned]) -> dict[str, float]:
    """Median speed and scores; {} without rounds."""
    columns: dict[str, list[float]] = {}
    for each in rounds:
        for what, value in ({SPEED: each.words_per_second} | each.scores).items():
            columns.setdefault(what, []).append(value)
    return {what: statistics.median(values) for what, values in columns.items()}


def check_questions() -> None:
    """Check before training that the files with human ratings are there."""
    folder = Path(os.environ.get("CLEARHEAD_DATA", "")) / "word2vec"
    if not all((folder / name).is_file() for name in QUESTIONS):
        raise DataError(f"bench words needs {' and '.join(QUESTIONS)} in a folder word2vec below $CLEARHEAD_DATA")


def scored(vectors: NDArray[Any], words: list[str]) -> dict[str, float]:
    """Spearman's correlation × 100 and the percentage of analogies solved, with our scorer for both."""
    return {score.name: 100 * score.value for score in human_scores(vectors, words)}


# --- ours ---


def our_trainer(folder: Path, seed: int, settings: Sequence[str] = SETTINGS) -> Trainer:
    """The ordinary trainer, with as many steps as EPOCHS epochs have."""
    run, config = Run(folder), override_config(default_config("words"), [*settings, f"train.seed={seed}"])
    steps = EPOCHS * len(make_trainer(run, config, Callbacks()).cursor)
    return make_trainer(run, override_config(config, [f"train.max_steps={steps}"]), Callbacks())


def train_ours(trainer: Trainer, lists: Sequence[Sequence[str]]) -> Learned:
    """Train to the end of the schedule; speed and scores."""
    evaluation = trainer.train()
    speed = EPOCHS * sum(map(len, lists)) / trainer.progress.elapsed
    return Learned(speed, {score.name: 100 * score.value for score in evaluation.scores})


def word_lists(task: Task[Any]) -> list[list[str]]:
    """The training text without rare words and punctuation, in lists as long as our rows."""
    assert isinstance(task, Words)
    (ids,) = task.train.read(np.array([0]), len(task.train))
    ids = ids[np.isin(ids, task.known)]
    names = np.array(task.tokenizer.pieces(range(len(task.tokenizer))), dtype=object)
    return [names[ids[first : first + ROW]].tolist() for first in range(0, len(ids), ROW)]


# --- gensim ---


def train_gensim(lists: list[list[str]], config: AnyConfig) -> Learned:
    """Train Word2Vec with our settings on all cores."""
    models = import_module("gensim.models")
    model = models.Word2Vec(
        sg=1,
        vector_size=config.model.dim,
        window=config.model.window,
        negative=config.model.negatives,
        sample=config.model.subsample,
        min_count=config.model.min_count,
        alpha=config.train.learning_rate,
        min_alpha=LAST_RATE,
        workers=os.cpu_count() or 1,
        seed=config.train.seed,
    )
    model.build_vocab(lists)
    began = time.perf_counter()
    model.train(lists, total_examples=len(lists), epochs=EPOCHS)
    seconds = time.perf_counter() - began
    speed = EPOCHS * sum(map(len, lists)) / seconds
    return Learned(speed, scored(model.wv.vectors, model.wv.index_to_key))
