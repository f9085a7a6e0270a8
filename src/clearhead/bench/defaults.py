"""`clearhead bench defaults`: what `clearhead train TASK --data PATH` learns when nobody chooses a setting.

Each point is an amount of data and a number of minutes on one core. The model is trained by the command itself, in a
process of its own; the validation part is set aside here, and no setting is given but the time. The peers learn from
the same parts: the linear models of scikit-learn, and nanoGPT's recipe for a CPU in the same minutes on one core.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from clearhead.bench import charlm
from clearhead.bench.measure import Measurement
from clearhead.bench.peers import reset_torch, transformers_gpt
from clearhead.data import read
from clearhead.data.hub import get
from clearhead.errors import RunError

PROMISE = 1.2  # limit of real time / promised time

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Peer:
    """What others reach: `score(data, minutes)` in the metric of the point."""

    name: str
    score: Callable[[Path, float], float]


@dataclass(frozen=True)
class Point:
    """A task, an amount of data and a time, and the score that it must reach."""

    name: str
    task: str
    data: Callable[[Path], Path]  # writes the data into a folder and returns the path to train on
    minutes: float
    metric: str
    limit: float | None = None
    peer: Peer | None = None

    @property
    def lower_is_better(self) -> bool:
        return self.metric == "bits per character"

    @property
    def unit(self) -> str:
        return {"accuracy": "%", "bits per character": "bits"}.get(self.metric, self.metric)

    @property
    def scale(self) -> int:
        return 100 if self.metric == "accuracy" else 1


def run(peers: bool) -> Iterator[Measurement]:
    """The score of every point, and the real time of each against the promised one."""
    for point in POINTS:
        with TemporaryDirectory() as folder:
            data = point.data(Path(folder))
            found = trained(point, data, Path(folder) / "run")
            bound: Literal["at most", "at least"] = "at most" if point.lower_is_better else "at least"
            detail = {"minutes": point.minutes, "data": point.name, **found}
            what = f"{point.name}, {point.minutes:g} minutes on one core"
            value = point.scale * found["scores"][point.metric]
            yield Measurement(what, value, point.unit, point.limit, detail, bound)
            yield Measurement(f"{what}: real time / promised", found["minutes"] / point.minutes, "×", PROMISE)
            if peers and point.peer is not None:
                theirs = point.scale * point.peer.score(data, point.minutes)
                yield Measurement(f"{point.name}, {point.peer.name}", theirs, point.unit)


def trained(point: Point, data: Path, out: Path) -> dict[str, Any]:
    """Train as a user would, on one core; the scores, and the minutes that it really took."""
    words = [
        "train",
        point.task,
        "--data",
        str(data),
        "--out",
        str(out),
        "--json",
        f"train.max_minutes={point.minutes:g}",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CLEARHEAD_THREADS": "1"}
    start = time.perf_counter()
    command = [sys.executable, "-m", "clearhead", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"`clearhead {' '.join(words)}` failed: {done.stderr[-500:]}")
    return {"scores": json.loads(done.stdout), "minutes": (time.perf_counter() - start) / 60}


# --- the data ---


def pairs(language: str, count: int) -> Callable[[Path], Path]:
    """Pairs of Tatoeba drawn at random, and 1,000 others whose English is not among them."""

    def write(folder: Path) -> Path:
        dataset = read(f"tatoeba-en-{language}", validation=0)
        rows: Rows = [(pair.source, pair.target) for pair in dataset.train]
        random.Random(0).shuffle(rows)
        held_out = rows[:1000]
        known = {source for source, _ in held_out}
        kept = [row for row in rows[1000:] if row[0] not in known][:count]
        return write_parts(folder, kept, held_out)

    return write


def novel(name: str) -> Callable[[Path], Path]:
    """One book of Project Gutenberg; training holds out its end."""

    def write(folder: Path) -> Path:
        text = (get("gutenberg").path / name).read_text(encoding="latin-1")
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    return write


def labelled(name: str) -> Callable[[Path], Path]:
    """A dataset of labelled texts with a tenth held out, or with its own validation part."""

    def write(folder: Path) -> Path:
        dataset = read(name, validation=0.1)
        train, held_out = ([(each.label, each.text) for each in part] for part in (dataset.train, dataset.validation))
        return write_parts(folder, train, held_out, "label\ttext\n")

    return write


def treebank(folder: Path) -> Path:
    """The sentences of a treebank, a tenth held out."""
    with gzip.open(get("ud-ewt").path, "rt", encoding="utf-8") as file:
        sentences = file.read().strip().split("\n\n")
    for part, chosen in (
        ("train", [i for i in range(len(sentences)) if i % 10]),
        ("valid", range(0, len(sentences), 10)),
    ):
        text = "\n\n".join(sentences[i] for i in chosen) + "\n\n"
        (folder / f"{part}.conllu").write_text(text, encoding="utf-8")
    return folder


def write_parts(folder: Path, train: Rows, held_out: Rows, header: str = "") -> Path:
    """Two tab-separated files that training finds by their names."""
    data = folder / "data"
    data.mkdir()
    for name, rows in (("train", train), ("valid", held_out)):
        lines = "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
        (data / f"{name}.tsv").write_text(header + lines, encoding="utf-8")
    return data


# --- the peers ---


def linear_texts(data: Path, _minutes: float) -> float:
    """The accuracy of logistic regression on words and pairs of words, weighted by tf-idf."""
    text, linear = import_module("sklearn.feature_extraction.text"), import_module("sklearn.linear_model")
    dataset = read(data)
    vectors = text.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    model = linear.LogisticRegression(C=10, max_iter=1000)
    model.fit(vectors.fit_transform(each.text for each in dataset.train), [each.label for each in dataset.train])
    held_out = list(dataset.validation)
    return float(model.score(vectors.transform(each.text for each in held_out), [each.label for each in held_out]))


def linear_tags(data: Path, _minutes: float) -> float:
    """The accuracy of logistic regression on a word, its ending, its shape and its neighbours."""
    features, linear = import_module("sklearn.feature_extraction"), import_module("sklearn.linear_model")
    dataset = read(data)
    vectors, model = features.DictVectorizer(), linear.LogisticRegression(C=3, max_iter=300)
    rows = [
        [_word_features(each.tokens, i) for each in part for i in range(len(each.tokens))] for part in _parts(dataset)
    ]
    tags = [[tag for each in part for tag in each.tags] for part in _parts(dataset)]
    model.fit(vectors.fit_transform(rows[0]), tags[0])
    return float(model.score(vectors.transform(rows[1]), tags[1]))


def _parts(dataset: Any) -> tuple[Any, Any]:
    return dataset.train, dataset.validation


def _word_features(words: Sequence[str], i: int) -> dict[str, Any]:
    word = words[i]
    found: dict[str, Any] = {"word": word.lower(), "capital": word[0].isupper(), "digit": any(map(str.isdigit, word))}
    found |= {f"end{n}": word[-n:].lower() for n in (1, 2, 3)} | {f"start{n}": word[:n].lower() for n in (1, 2)}
    found["before"] = words[i - 1].lower() if i else ""
    found["after"] = words[i + 1].lower() if i + 1 < len(words) else ""
    return found


def nanogpt(data: Path, minutes: float) -> float:
    """Bits per character of nanoGPT's recipe for a CPU, its schedule fitted to the minutes; evaluation comes on top."""
    dataset = read(data, kind="text")
    parts = ["".join(part) for part in _parts(dataset)]
    ids = {character: number for number, character in enumerate(sorted(set("".join(parts))))}
    train, held_out = (torch.tensor([ids[character] for character in part]) for part in parts)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    reset_torch()
    try:
        size = replace(charlm.GPT, vocabulary=len(ids))
        peer, start, done = transformers_gpt(size), time.perf_counter(), 0.0
        while done < 1.0:
            peer.set_rate(charlm.peer_rate(done * charlm.STEPS))
            peer.update(charlm.random_windows(train, size))
            done = (time.perf_counter() - start) / (60 * minutes)
        return charlm.validation_loss(peer, held_out, size) / math.log(2)
    finally:
        torch.set_num_threads(threads)


LINEAR_TEXTS, LINEAR_TAGS = (Peer("scikit-learn's linear model", score) for score in (linear_texts, linear_tags))
NANOGPT = Peer("nanoGPT's recipe for a CPU in transformers", nanogpt)

POINTS = (
    Point("en-fr, 20,000 pairs", "translate", pairs("fr", 20_000), 4, "chrF2", 47),
    Point("en-de, 1,000 pairs", "translate", pairs("de", 1000), 2, "chrF2"),
    Point("en-de, 10,000 pairs", "translate", pairs("de", 10_000), 5, "chrF2"),
    Point("en-de, 100,000 pairs", "translate", pairs("de", 100_000), 20, "chrF2"),
    Point("a novel", "lm", novel("austen-emma.txt"), 3, "bits per character", 1.65, NANOGPT),
    Point("TREC", "classify", labelled("trec"), 1, "accuracy", 87, LINEAR_TEXTS),
    Point("SST-2", "classify", labelled("sst2"), 3, "accuracy", 82, LINEAR_TEXTS),
    Point("universal tags", "tag", treebank, 3, "accuracy", 90, LINEAR_TAGS),
)
