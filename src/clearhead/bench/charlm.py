"""`clearhead bench charlm`: time to train a character model of Shakespeare to a given loss, against transformers.

The text is tiny Shakespeare: its first 90 % for training, all of its last 10 % for validation, in nats per character.
The peer is `GPT2LMHeadModel` with nanoGPT's recipe for a CPU. Ours has no more parameters, and its time is that of its
whole schedule; the peer's time ends at the first evaluation that reaches the loss. Evaluations are not timed.

    B windows, T characters, N characters of a text
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from clearhead.bench.measure import Measurement
from clearhead.bench.peers import RATE, Gpt, Peer, reset_torch, transformers_gpt
from clearhead.data import read
from clearhead.run import Run
from clearhead.tasks import default_config, override_config
from clearhead.tasks.base.network import parameter_count
from clearhead.train.loop import Callbacks
from clearhead.train.start import make_trainer

TARGET_LOSS = 1.88  # nats per character of the validation text
PARAMETERS = 0.81  # millions
RATIO = 0.25  # of the peer's seconds
ROUNDS = 3

SETTINGS = (
    "tokenizer.kind=char",
    "data.batch_tokens=640",
    "model.dim=144",
    "model.heads=3",
    "model.layers=3",
    "model.length=64",
    "model.positions=rotary",
    "model.norm=rms",
    "model.feed_forward=relu",
    "model.bias=false",
    "model.dropout=0",
    "train.optimizer=muon",
    "train.learning_rate=0.008",
    "train.matrix_rate=0.022",
    "train.clip=null",
    "train.schedule=linear",
    "train.warmup=0.02",
    "train.max_steps=365",
    "train.evaluate_every=100000",
    "train.checkpoint_every=100000",
)

# nanoGPT's recipe for a CPU.
GPT = Gpt(layers=4, dim=128, heads=4, block=64, batch=12)
WARM_UP, STEPS, LAST_RATE = 100, 2000, 1e-4
FIRST_EVALUATION, EVALUATE_EVERY, MAX_STEPS = 1000, 100, 3000


@dataclass(frozen=True)
class Trained:
    """The result of one training run."""

    seconds: float  # of training, without evaluations
    loss: float  # nats per character of the validation text
    steps: int
    parameters: int


def run(peers: bool) -> Iterator[Measurement]:
    """Train ours, then the peer, several times with different seeds; all results come at the end."""
    ours, theirs = [], []
    with TemporaryDirectory() as folder:
        parts = write_parts("".join(read("tinyshakespeare", kind="text", validation=0).train), Path(folder))
        for seed in range(1, ROUNDS + 1):
            ours.append(train_ours(parts, seed))
            if peers:
                theirs.append(train_peer(parts, seed))
    yield from results(ours, theirs)


def results(ours: Sequence[Trained], theirs: Sequence[Trained]) -> Iterator[Measurement]:
    """The highest loss, the median seconds, and the ratio of both trainings."""
    detail = {"rounds": [asdict(each) for each in ours]}
    seconds = statistics.median(each.seconds for each in ours)
    yield Measurement(
        "clearhead: loss, highest of all rounds", max(each.loss for each in ours), "nats", TARGET_LOSS, detail
    )
    yield Measurement("clearhead: parameters", max(each.parameters for each in ours) / 1e6, "M", PARAMETERS)
    yield Measurement("clearhead: training, whole schedule", seconds, "s", None, detail)
    if theirs:
        detail = {"rounds": [asdict(each) for each in theirs]}
        peer = statistics.median(each.seconds for each in theirs)
        yield Measurement(
            "transformers: loss, highest of all rounds", max(e.loss for e in theirs), "nats", None, detail
        )
        yield Measurement(f"transformers: training until {TARGET_LOSS} or given up", peer, "s", None, detail)
        yield Measurement("training seconds, clearhead / transformers", seconds / peer, "×", RATIO)


def write_parts(text: str, folder: Path) -> Path:
    """Write the first 90 % and the last 10 % of the characters to two files in a folder."""
    border = int(0.9 * len(text))
    for name, part in (("train.txt", text[:border]), ("validation.txt", text[border:])):
        (folder / name).write_text(part, encoding="utf-8", newline="")
    return folder


# --- ours ---


def train_ours(parts: Path, seed: int, settings: Sequence[str] = SETTINGS) -> Trained:
    """Train to the end of the schedule with the ordinary trainer."""
    config = override_config(
        default_config("lm"), [*settings, "data.kind=text", f"data.path={parts}", f"train.seed={seed}"]
    )
    with TemporaryDirectory() as folder:
        trainer = make_trainer(Run(Path(folder)), config, Callbacks())
        evaluation = trainer.train()
    return Trained(trainer.training_seconds, evaluation.loss, trainer.step, parameter_count(trainer.model))


# --- the peer ---


def train_peer(parts: Path, seed: int, size: Gpt = GPT, max_steps: int = MAX_STEPS) -> Trained:
    """Train until an evaluation reaches the target loss, or for `max_steps`."""
    reset_torch()
    torch.manual_seed(seed)
    train, held_out = character_ids(parts)
    peer, seconds, loss, step = transformers_gpt(size), 0.0, math.inf, 0
    while loss > TARGET_LOSS and step < max_steps:
        rows = random_windows(train, size)
        began = time.perf_counter()
        peer.set_rate(peer_rate(step))
        peer.update(rows)
        seconds += time.perf_counter() - began
        step += 1
        if step == max_steps or (step >= FIRST_EVALUATION and step % EVALUATE_EVERY == 0):
            loss = validation_loss(peer, held_out, size)
    return Trained(seconds, loss, step, parameter_count(peer.model))


def peer_rate(step: float) -> float:
    """Linear warm-up, half a cosine down, then the lowest rate."""
    if step < WARM_UP:
        return RATE * (step + 1) / (WARM_UP + 1)
    done = min(1.0, (step - WARM_UP) / (STEPS - WARM_UP))
    return LAST_RATE + 0.5 * (1 + math.cos(math.pi * done)) * (RATE - LAST_RATE)


def character_ids(parts: Path) -> tuple[Tensor, Tensor]:
    """Training and validation text as character ids, each (N,)."""
    texts = [(parts / name).read_bytes().decode() for name in ("train.txt", "validation.txt")]
    ids = {character: number for number, character in enumerate(sorted(set("".join(texts))))}
    train, held_out = (torch.tensor([ids[character] for character in text]) for text in texts)
    return train, held_out


def random_windows(tokens: Tensor, size: Gpt) -> Tensor:
    """Random windows of a text: (N,) -> (B, T + 1)."""
    starts = torch.randint(len(tokens) - size.block, (size.batch, 1))
    return tokens[starts + torch.arange(size.block + 1)]


@torch.inference_mode()
def validation_loss(peer: Peer, tokens: Tensor, size: Gpt) -> float:
    """Mean loss over the whole text, window after window; every character but the first is predicted once."""
    peer.model.eval()
    ends = [*range(0, len(tokens) - 1, size.block), len(tokens) - 1]
    rows = [tokens[first : last + 1] for first, last in pairwise(ends)]
    whole = sum(len(row) == size.block + 1 for row in rows)  # all but perhaps the last
    batches = [torch.stack(rows[first : min(first + 64, whole)]) for first in range(0, whole, 64)]
    batches += [row[None] for row in rows[whole:]]  # each (B, T + 1)
    total = sum(float(peer.loss(batch)) * batch[:, 1:].numel() for batch in batches)
    peer.model.train()
    return total / (len(tokens) - 1)
