"""`clearhead bench charlm`: how long a character model of Shakespeare takes to learn enough, against transformers.

The text is tiny Shakespeare: its first 90 % to learn from, its last 10 % to be measured on, in nats per character and
all of it. The peer is `GPT2LMHeadModel` with nanoGPT's recipe for a CPU. Ours has no more parameters and its time is
that of its whole schedule; the peer's time ends at the first evaluation that is good enough. Evaluations are not timed.

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
from torch import Tensor, nn

from clearhead.bench.measure import Measurement
from clearhead.bench.peers import RATE, Gpt, Peer, as_torch_comes, transformers_gpt
from clearhead.config import defaults, override
from clearhead.data import read
from clearhead.run import Run
from clearhead.train.loop import Callbacks
from clearhead.train.start import make_trainer

ENOUGH = 1.88  # nats per character of the validation text
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
FIRST_LOOK, LOOK_EVERY, MOST_STEPS = 1000, 100, 3000


@dataclass(frozen=True)
class Trained:
    """What one training came to."""

    seconds: float  # of training alone
    loss: float  # nats per character of the whole validation text
    steps: int
    parameters: int


def run(peers: bool) -> Iterator[Measurement]:
    """Train ours, and the peer after it, several times from other seeds; the figures come at the end."""
    ours, theirs = [], []
    with TemporaryDirectory() as folder:
        parts = write_parts("".join(read("tinyshakespeare", kind="text", validation=0).train), Path(folder))
        for seed in range(1, ROUNDS + 1):
            ours.append(train_ours(parts, seed))
            if peers:
                theirs.append(train_peer(parts, seed))
    yield from figures(ours, theirs)


def figures(ours: Sequence[Trained], theirs: Sequence[Trained]) -> Iterator[Measurement]:
    """The worst loss of ours, the median seconds, and how they compare."""
    detail = {"rounds": [asdict(each) for each in ours]}
    seconds = statistics.median(each.seconds for each in ours)
    yield Measurement("clearhead: loss, highest of all rounds", max(each.loss for each in ours), "nats", ENOUGH, detail)
    yield Measurement("clearhead: parameters", max(each.parameters for each in ours) / 1e6, "M", PARAMETERS)
    yield Measurement("clearhead: training, whole schedule", seconds, "s", None, detail)
    if theirs:
        detail = {"rounds": [asdict(each) for each in theirs]}
        peer = statistics.median(each.seconds for each in theirs)
        yield Measurement(
            "transformers: loss, highest of all rounds", max(e.loss for e in theirs), "nats", None, detail
        )
        yield Measurement(f"transformers: training until {ENOUGH} or given up", peer, "s", None, detail)
        yield Measurement("training seconds, clearhead / transformers", seconds / peer, "×", RATIO)


def write_parts(text: str, folder: Path) -> Path:
    """A folder with the first 90 % and the last 10 % of the characters."""
    border = int(0.9 * len(text))
    for name, part in (("train.txt", text[:border]), ("validation.txt", text[border:])):
        (folder / name).write_text(part, encoding="utf-8", newline="")
    return folder


# --- ours ---


def train_ours(parts: Path, seed: int, settings: Sequence[str] = SETTINGS) -> Trained:
    """To the end of the schedule, through the ordinary trainer."""
    config = override(defaults("lm"), [*settings, "data.kind=text", f"data.path={parts}", f"train.seed={seed}"])
    with TemporaryDirectory() as folder:
        trainer = make_trainer(Run(Path(folder)), config, Callbacks())
        found = trainer.train()
    return Trained(trainer.progress.elapsed, found.loss, trainer.step, parameters(trainer.model))


def parameters(model: nn.Module) -> int:
    """How many numbers are learned; a matrix that two parts share counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


# --- the peer ---


def train_peer(parts: Path, seed: int, size: Gpt = GPT, most: int = MOST_STEPS) -> Trained:
    """Until an evaluation finds it good enough, or as many steps are made as it is given."""
    as_torch_comes()
    torch.manual_seed(seed)
    train, held_out = numbered(parts)
    peer, seconds, loss, step = transformers_gpt(size), 0.0, math.inf, 0
    while loss > ENOUGH and step < most:
        rows = random_windows(train, size)
        began = time.perf_counter()
        peer.set_rate(peer_rate(step))
        peer.update(rows)
        seconds += time.perf_counter() - began
        step += 1
        if step == most or (step >= FIRST_LOOK and step % LOOK_EVERY == 0):
            loss = whole_loss(peer, held_out, size)
    return Trained(seconds, loss, step, parameters(peer.model))


def peer_rate(step: int) -> float:
    """A straight line up, half a cosine down, and from then on the lowest rate."""
    if step < WARM_UP:
        return RATE * (step + 1) / (WARM_UP + 1)
    done = min(1.0, (step - WARM_UP) / (STEPS - WARM_UP))
    return LAST_RATE + 0.5 * (1 + math.cos(math.pi * done)) * (RATE - LAST_RATE)


def numbered(parts: Path) -> tuple[Tensor, Tensor]:
    """The two texts, each (N,), as the places of their characters among all there are."""
    texts = [(parts / name).read_bytes().decode() for name in ("train.txt", "validation.txt")]
    place = {character: number for number, character in enumerate(sorted(set("".join(texts))))}
    train, held_out = (torch.tensor([place[character] for character in text]) for text in texts)
    return train, held_out


def random_windows(tokens: Tensor, size: Gpt) -> Tensor:
    """(N,) -> (B, T + 1), from anywhere."""
    starts = torch.randint(len(tokens) - size.block, (size.batch, 1))
    return tokens[starts + torch.arange(size.block + 1)]


@torch.inference_mode()
def whole_loss(peer: Peer, tokens: Tensor, size: Gpt) -> float:
    """The mean over the whole text, window after window; every character but the first is predicted once."""
    peer.model.eval()
    ends = [*range(0, len(tokens) - 1, size.block), len(tokens) - 1]
    rows = [tokens[first : last + 1] for first, last in pairwise(ends)]
    whole = sum(len(row) == size.block + 1 for row in rows)  # all but perhaps the last
    batches = [torch.stack(rows[first : min(first + 64, whole)]) for first in range(0, whole, 64)]
    batches += [row[None] for row in rows[whole:]]  # each (B, T + 1)
    total = sum(float(peer.loss(batch)) * batch[:, 1:].numel() for batch in batches)
    peer.model.train()
    return total / (len(tokens) - 1)
