"""`clearhead bench train`: milliseconds for one training step of the same GPT, against transformers and x-transformers.

A step is the forward pass, the loss, the backward pass, clipping, AdamW and the end of the gradients; ours is the
trainer's own, with all that it writes and checks. The candidates take turns, a few steps each.

    B windows, T tokens
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from clearhead.bench.figures import Figure
from clearhead.bench.measure import side_by_side
from clearhead.bench.peers import BETAS, CLIP, PEERS, RATE, WEIGHT_DECAY, Gpt, Peer, as_torch_comes
from clearhead.config import defaults, override
from clearhead.text import SPECIALS
from clearhead.train.loop import Listener, Trainer
from clearhead.train.run import Run
from clearhead.train.start import make_trainer
from clearhead.train.task import Examples

SIZES = {
    Gpt(layers=4, dim=128, heads=4, block=64, batch=12): 40,
    Gpt(layers=6, dim=384, heads=6, block=256, batch=8): 7,
}  # and in how many rounds each is measured
TURN = 5  # steps that one candidate makes before it is the next one's turn
RATIO = 1.0  # of the faster peer's milliseconds


def run(peers: bool) -> Iterator[Figure]:
    """Both sizes."""
    for size, rounds in SIZES.items():
        yield from figures(size, milliseconds(size, peers, rounds), rounds)


def figures(size: Gpt, taken: Mapping[str, float], rounds: int) -> Iterator[Figure]:
    """The time of each, and ours against the faster peer's."""
    what = f"{size}, {size.batch} × {size.block} tokens"
    detail = {"milliseconds": dict(taken), "rounds": rounds, "steps in a turn": TURN}
    for name, each in taken.items():
        yield Figure(f"{what}: one step of {name}", each, "ms", None, detail)
    peers = {name: each for name, each in taken.items() if name != "clearhead"}
    if peers:
        faster = min(peers, key=lambda name: peers[name])
        yield Figure(f"{what}: clearhead / {faster}", taken["clearhead"] / peers[faster], "×", RATIO, detail)


def milliseconds(size: Gpt, peers: bool, rounds: int) -> dict[str, float]:
    """The median milliseconds of one step of each candidate, all on the same batches."""
    with TemporaryDirectory() as folder:
        trainer = our_trainer(size, Path(folder))
        batches = list(islice(trainer.cursor.forever(), TURN))  # each (B, T + 1)
        candidates = {"clearhead": our_turn(trainer, batches)}
        if peers:
            rows = [torch.from_numpy(batch) for batch in batches]
            candidates |= {name: turn_of(make(size), rows) for name, make in PEERS.items()}
        return {name: taken / TURN for name, taken in side_by_side(candidates, rounds).items()}


def our_trainer(size: Gpt, folder: Path) -> Trainer:
    """The trainer of a GPT as others make it, on random text with as many characters as its vocabulary has room for."""
    characters = (string.ascii_letters + string.digits)[: size.vocabulary - len(SPECIALS)]
    count = 2 * TURN * size.batch * size.block
    (folder / "text.txt").write_text("".join(random.Random(1).choices(characters, k=count)), encoding="utf-8")
    settings = (
        f"data.path={folder / 'text.txt'}",
        "data.kind=text",
        f"data.batch_tokens={size.batch * size.block}",
        "tokenizer.kind=char",
        f"model.layers={size.layers}",
        f"model.dim={size.dim}",
        f"model.heads={size.heads}",
        f"model.length={size.block}",
        f"model.max_length={size.block}",
        "model.positions=learned",
        "model.norm=layer",
        "model.feed_forward=gelu",
        "model.dropout=0",
        "train.optimizer=adamw",
        f"train.learning_rate={RATE}",
        f"train.betas={BETAS[0]},{BETAS[1]}",
        f"train.weight_decay={WEIGHT_DECAY}",
        f"train.clip={CLIP}",
        "train.schedule=stable",
        "train.warmup=0",
        "train.max_steps=1000000",
    )
    return make_trainer(Run(folder), override(defaults("lm"), settings), Listener())


def our_turn(trainer: Trainer, batches: Sequence[Examples]) -> Callable[[], None]:
    """Some steps of ours, with torch as our trainer wants it."""

    def turn() -> None:
        torch.use_deterministic_algorithms(trainer.config.deterministic, warn_only=True)
        for batch in batches:
            trainer.update([batch])

    return turn


def turn_of(peer: Peer, batches: Sequence[Tensor]) -> Callable[[], None]:
    """Some steps of a peer, with torch as it comes."""

    def turn() -> None:
        as_torch_comes()
        for batch in batches:
            peer.update(batch)

    return turn
