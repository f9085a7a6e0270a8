"""`clearhead bench train`: milliseconds per training step of one GPT, against transformers and x-transformers.

A step is forward, loss, backward, clipping, AdamW and zeroing the gradients; ours is the trainer's own step with its
checks and logging. The candidates take turns, a few steps each, in processes that are restarted several times, since
memory layout differs between processes. Linear layers have biases in transformers and none in x-transformers, so ours
is measured both ways, each beside its equal.

    B windows, T tokens
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from clearhead.bench.measure import Measurement, Round, median_ratio, medians, rounds_apart
from clearhead.bench.peers import BETAS, CLIP, PEERS, RATE, WEIGHT_DECAY, Gpt
from clearhead.run import Run
from clearhead.tasks import default_config, override_config
from clearhead.text import SPECIALS
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import make_trainer

SIZES = {
    Gpt(layers=4, dim=128, heads=4, block=64, batch=12): 10,
    Gpt(layers=6, dim=384, heads=6, block=256, batch=8): 3,
}  # rounds after each start
STARTS = 5
TURN = 5  # steps per turn
OURS, OURS_BARE = "clearhead", "clearhead without biases"
SAME = {"transformers": OURS, "x-transformers": OURS_BARE}  # which of ours has the same layers
RATIO = 1.0  # limit of ours / peer


def run(peers: bool) -> Iterator[Measurement]:
    """Milliseconds per step of every candidate in both sizes."""
    for size, rounds in SIZES.items():
        yield from results(size, measured(size, peers, rounds))


def results(size: Gpt, rounds: Sequence[Round]) -> Iterator[Measurement]:
    """Milliseconds of each candidate, and the ratio of ours to each peer."""
    what, taken = f"{size}, {size.batch} × {size.block} tokens", medians(rounds)
    detail = {"milliseconds": taken, "rounds": len(rounds), "steps in a turn": TURN}
    for name, each in taken.items():
        yield Measurement(f"{what}: one step of {name}", each, "ms", None, detail)
    for peer, ours in SAME.items():
        if peer in taken:
            yield Measurement(f"{what}: {ours} / {peer}", median_ratio(rounds, ours, peer), "×", RATIO, detail)


def measured(size: Gpt, peers: bool, rounds: int, starts: int = STARTS) -> list[Round]:
    """Milliseconds per step of each candidate, each in its own process."""
    with TemporaryDirectory() as folder:
        candidates = {OURS: partial(our_turn, size, Path(folder, "biases"), bias=True)}
        if peers:  # each beside its equal
            candidates |= {
                "transformers": partial(peer_turn, "transformers", size),
                OURS_BARE: partial(our_turn, size, Path(folder, "bare"), bias=False),
                "x-transformers": partial(peer_turn, "x-transformers", size),
            }
        found = [each for _ in range(starts) for each in rounds_apart(candidates, rounds, warm_up=2)]
    return [{name: taken / TURN for name, taken in each.items()} for each in found]


def our_trainer(size: Gpt, folder: Path, *, bias: bool = True) -> Trainer:
    """Our trainer of the same GPT, on random text with as many characters as its vocabulary holds."""
    characters = (string.ascii_letters + string.digits)[: size.vocabulary - len(SPECIALS)]
    count = 2 * TURN * size.batch * size.block
    folder.mkdir(exist_ok=True)
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
        f"model.bias={bias}",
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
    return make_trainer(Run(folder), override_config(default_config("lm"), settings), Callbacks())


def our_turn(size: Gpt, folder: Path, *, bias: bool) -> Callable[[], None]:
    """A turn of ours: TURN steps."""
    trainer = our_trainer(size, folder, bias=bias)
    batches = list(islice(trainer.cursor.forever(), TURN))  # each (B, T + 1)

    def turn() -> None:
        for batch in batches:
            trainer.update([batch])

    return turn


def peer_turn(name: str, size: Gpt) -> Callable[[], None]:
    """A turn of a peer: TURN steps on as many random tokens."""
    peer, generator = PEERS[name](size), torch.Generator().manual_seed(1)
    batches = torch.randint(size.vocabulary, (TURN, size.batch, size.block + 1), generator=generator)

    def turn() -> None:
        for batch in batches:
            peer.update(batch)

    return turn
