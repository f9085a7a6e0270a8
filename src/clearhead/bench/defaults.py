"""`clearhead bench defaults`: what `clearhead train TASK --data PATH` learns when nobody chooses a setting.

Each point is an amount of data and a number of minutes on one core. A part of the data is held out here, and training
never sees it: the command itself trains on the rest, in a process of its own, with no setting but the time; it sets its
own validation part aside and chooses its best weights there. `clearhead eval` then scores them on what was held out.
The peers learn from the same data: the linear models of scikit-learn, and nanoGPT's recipe for a CPU in the same
minutes on one core.
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
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from clearhead.bench import charlm
from clearhead.bench.measure import Measurement
from clearhead.bench.peers import reset_torch, transformers_gpt
from clearhead.data import read
from clearhead.data.hub import get
from clearhead.errors import ConfigError, RunError, nearest
from clearhead.tasks.base.recipe import Budget

PROMISE = 20  # per cent: how far the real time may be from the promised one

Rows = list[tuple[str, str]]
Row = TypeVar("Row")


@dataclass(frozen=True)
class Data:
    """What to train on, and what only the last evaluation sees."""

    train: Path
    held_out: Path


@dataclass(frozen=True)
class Peer:
    """What others reach: `score(data, minutes)` in the metric of the point."""

    name: str
    score: Callable[[Data, float], float]


@dataclass(frozen=True)
class Point:
    """A task, an amount of data and a time, and the score that it must reach."""

    name: str
    task: str
    data: Callable[[Path], Data]  # writes the data into a folder
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


def run(peers: bool, only: str = "") -> Iterator[Measurement]:
    """The score of every point whose name begins with `only`, and its real time against the promised one."""
    for point in points(only):
        with TemporaryDirectory() as folder:
            data = point.data(Path(folder))
            found = trained(point, data, Path(folder) / "run")
            bound: Literal["at most", "at least"] = "at most" if point.lower_is_better else "at least"
            detail = {"minutes": point.minutes, "data": point.name, **found}
            what = f"{point.name}, {Budget(point.minutes, cores=1)}"
            value = point.scale * found["scores"][point.metric]
            yield Measurement(what, value, point.unit, point.limit, detail, bound)
            off = 100 * abs(found["minutes"] / point.minutes - 1)
            yield Measurement(f"{what}: real time off the promised one", off, "%", PROMISE)
            if peers and point.peer is not None:
                theirs = point.scale * point.peer.score(data, point.minutes)
                yield Measurement(f"{point.name}, {point.peer.name}", theirs, point.unit)


def points(beginning: str) -> list[Point]:
    """Those whose names have this beginning, in capitals or not."""
    found = [point for point in POINTS if point.name.lower().startswith(beginning.lower())]
    if not found:
        names = [point.name for point in POINTS]
        raise ConfigError(f"no point of bench defaults begins with {beginning!r}; {nearest(beginning, names)}")
    return found


def trained(point: Point, data: Data, out: Path) -> dict[str, Any]:
    """Train as a user would, on one core; the scores on what was held out, and the minutes that training really took.

    The minutes are those of the whole command, from its start to the end of its last evaluation.
    """
    words = [point.task, "--data", str(data.train), "--out", str(out), f"train.max_minutes={point.minutes:g}"]
    start = time.perf_counter()
    validation = _command("train", *words)
    minutes = (time.perf_counter() - start) / 60
    evaluation = _command("eval", str(out), "--data", str(data.held_out))
    scores = {score["name"]: score["value"] for score in evaluation["scores"]}
    return {"scores": scores, "validation": validation, "minutes": minutes}


def _command(*words: str) -> dict[str, Any]:
    """What a command prints with --json, on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CLEARHEAD_THREADS": "1"}
    command = [sys.executable, "-m", "clearhead", *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"`clearhead {' '.join(words)}` failed: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- the data ---


def pairs(language: str, count: int) -> Callable[[Path], Data]:
    """Pairs of Tatoeba drawn at random, and 1,000 others whose English is not among them."""

    def write(folder: Path) -> Data:
        rows: Rows = [(pair.source, pair.target) for pair in read(f"tatoeba-en-{language}", validation=0).train]
        kept, held_out = split(rows, 1000, key=lambda row: row[0])
        parts = Data(folder / "data.tsv", folder / "held-out.tsv")
        write_table(parts.train, kept[:count])
        write_table(parts.held_out, held_out)
        return parts

    return write


def novel(name: str) -> Callable[[Path], Data]:
    """One book of Project Gutenberg; its last twentieth is held out."""

    def write(folder: Path) -> Data:
        text = (get("gutenberg").path / name).read_text(encoding="latin-1")
        cut = text.index("\n", len(text) * 19 // 20) + 1
        return write_files(folder, ".txt", text[:cut], text[cut:])

    return write


def labelled(name: str) -> Callable[[Path], Data]:
    """A dataset of labelled texts; its own validation part is held out, else a tenth."""

    def write(folder: Path) -> Data:
        dataset = read(name, validation=0.1)
        rows, held_out = ([(each.label, each.text) for each in part] for part in (dataset.train, dataset.validation))
        # Its validation part is drawn here: `read` holds out by a hash, which finds none in what is left.
        kept, validation = split(rows, min(1000, len(rows) // 20), key=lambda row: row[1])
        parts = Data(folder / "data", folder / "held-out.tsv")
        parts.train.mkdir()
        for path, part in (("data/train.tsv", kept), ("data/valid.tsv", validation), ("held-out.tsv", held_out)):
            write_table(folder / path, part, "label\ttext\n")
        return parts

    return write


def treebank(folder: Path) -> Data:
    """The sentences of a treebank, a tenth held out."""
    with gzip.open(get("ud-ewt").path, "rt", encoding="utf-8") as file:
        sentences = [f"{each}\n\n" for each in file.read().strip().split("\n\n")]
    kept = (sentence for number, sentence in enumerate(sentences) if number % 10)
    return write_files(folder, ".conllu", "".join(kept), "".join(sentences[::10]))


def digits(folder: Path) -> Data:
    """The images of MNIST, 10,000 held out."""
    kept, held_out = split(list(read("mnist", validation=0).train), 10_000, key=lambda each: each.image.tobytes())
    parts = Data(folder / "data.npz", folder / "held-out.npz")
    for path, part in ((parts.train, kept), (parts.held_out, held_out)):
        images, labels = zip(*((each.image, each.label) for each in part), strict=True)
        np.savez(path, images=np.stack(images), labels=np.array(labels))
    return parts


def split(examples: list[Row], count: int, key: Callable[[Row], Any]) -> tuple[list[Row], list[Row]]:
    """Those to learn from and `count` held out at random; none of the first has the key of one that is held out."""
    shuffled = random.Random(0).sample(examples, len(examples))
    held_out, known = shuffled[:count], {key(each) for each in shuffled[:count]}
    return [each for each in shuffled[count:] if key(each) not in known], held_out


def write_table(path: Path, rows: Rows, header: str = "") -> None:
    """A tab-separated file."""
    lines = ("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    path.write_text(header + "".join(lines), encoding="utf-8")


def write_files(folder: Path, suffix: str, train: str, held_out: str) -> Data:
    """Two files, whose names do not make one the validation part of the other."""
    parts = Data(folder / f"data{suffix}", folder / f"held-out{suffix}")
    parts.train.write_text(train, encoding="utf-8")
    parts.held_out.write_text(held_out, encoding="utf-8")
    return parts


# --- the peers ---


def linear_texts(data: Data, _minutes: float) -> float:
    """The accuracy of logistic regression on words and pairs of words, weighted by tf-idf."""
    text, linear = import_module("sklearn.feature_extraction.text"), import_module("sklearn.linear_model")
    train, held_out = _examples(data)
    vectors = text.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    model = linear.LogisticRegression(C=10, max_iter=1000)
    model.fit(vectors.fit_transform(each.text for each in train), [each.label for each in train])
    return float(model.score(vectors.transform(each.text for each in held_out), [each.label for each in held_out]))


def linear_tags(data: Data, _minutes: float) -> float:
    """The accuracy of logistic regression on a word, its ending, its shape and its neighbours."""
    features, linear = import_module("sklearn.feature_extraction"), import_module("sklearn.linear_model")
    vectors, model = features.DictVectorizer(), linear.LogisticRegression(C=3, max_iter=300)
    parts = _examples(data)
    rows = [[_word_features(each.tokens, i) for each in part for i in range(len(each.tokens))] for part in parts]
    tags = [[tag for each in part for tag in each.tags] for part in parts]
    model.fit(vectors.fit_transform(rows[0]), tags[0])
    return float(model.score(vectors.transform(rows[1]), tags[1]))


def _examples(data: Data) -> tuple[list[Any], list[Any]]:
    """All examples to learn from, and all that are held out: a peer that chooses nothing needs no validation part."""
    train, held_out = (read(path, validation=0) for path in (data.train, data.held_out))
    return [*train.train, *train.validation], list(held_out.train)


def _word_features(words: Sequence[str], i: int) -> dict[str, Any]:
    word = words[i]
    found: dict[str, Any] = {"word": word.lower(), "capital": word[0].isupper(), "digit": any(map(str.isdigit, word))}
    found |= {f"end{n}": word[-n:].lower() for n in (1, 2, 3)} | {f"start{n}": word[:n].lower() for n in (1, 2)}
    found["before"] = words[i - 1].lower() if i else ""
    found["after"] = words[i + 1].lower() if i + 1 < len(words) else ""
    return found


def nanogpt(data: Data, minutes: float) -> float:
    """Bits per character of nanoGPT's recipe for a CPU, its schedule fitted to the minutes; evaluation comes on top."""
    parts = [path.read_text(encoding="utf-8") for path in (data.train, data.held_out)]
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
    Point("digits", "vision", digits, 5, "accuracy", 99),
)
