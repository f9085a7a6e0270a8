"""`clearhead bench train`: milliseconds for one training step of the same GPT, against transformers and x-transformers.

A step is the forward pass, the loss, the backward pass, clipping, AdamW and the end of the gradients; ours is the
trainer's own, with all that it writes and checks. The candidates take turns, a few steps each, and are started anew
several times: a process may be lucky with its memory. Linear maps have biases in transformers and none in
x-transformers, so ours is measured both ways, each beside the one that is the same.

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
from clearhead.config import defaults, override
from clearhead.run import Run
from clearhead.text import SPECIALS
from clearhead.train.loop import Callbacks, Trainer
from clearhead.train.start import make_trainer

SIZES = {
    Gpt(layers=4, dim=128, heads=4, block=64, batch=12): 10,
    Gpt(layers=6, dim=384, heads=6, block=256, batch=8): 3,
}  # and in how many rounds each is measured after each start
STARTS = 5
TURN = 5  # steps that one candidate makes before it is the next one's turn
OURS, OURS_BARE = "clearhead", "clearhead without biases"
SAME = {"transformers": OURS, "x-transformers": OURS_BARE}  # which of ours is the same GPT
RATIO = 1.0  # of a peer's milliseconds


def run(peers: bool) -> Iterator[Measurement]:
    """Both sizes."""
    for size, rounds in SIZES.items():
        yield from figures(size, measured(size, peers, rounds))


def figures(size: Gpt, rounds: Sequence[Round]) -> Iterator[Measurement]:
    """The time of each, and ours against each peer's."""
    what, taken = f"{size}, {size.batch} × {size.block} tokens", medians(rounds)
    detail = {"milliseconds": taken, "rounds": len(rounds), "steps in a turn": TURN}
    for name, each in taken.items():
        yield Measurement(f"{what}: one step of {name}", each, "ms", None, detail)
    for peer, ours in SAME.items():
        if peer in taken:
            yield Measurement(f"{what}: {ours} / {peer}", median_ratio(rounds, ours, peer), "×", RATIO, detail)


def measured(size: Gpt, peers: bool, rounds: int, starts: int = STARTS) -> list[Round]:
    """The milliseconds of one step of each candidate, each in a process of its own."""
    with TemporaryDirectory() as folder:
        candidates = {OURS: partial(our_turn, size, Path(folder, "biases"), bias=True)}
        if peers:  # each beside the one of ours that is the same
            candidates |= {
                "transformers": partial(turn_of, "transformers", size),
                OURS_BARE: partial(our_turn, size, Path(folder, "bare"), bias=False),
                "x-transformers": partial(turn_of, "x-transformers", size),
            }
        found = [each for _ in range(starts) for each in rounds_apart(candidates, rounds, warm_up=2)]
    return [{name: taken / TURN for name, taken in each.items()} for each in found]


def our_trainer(size: Gpt, folder: Path, *, bias: bool = True) -> Trainer:
    """The trainer of a GPT as others make it, on random text with as many characters as its vocabulary has room for."""
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
    return make_trainer(Run(folder), override(defaults("lm"), settings), Callbacks())


def our_turn(size: Gpt, folder: Path, *, bias: bool) -> Callable[[], None]:
    """Some steps of ours."""
    trainer = our_trainer(size, folder, bias=bias)
    batches = list(islice(trainer.cursor.forever(), TURN))  # each (B, T + 1)

    def turn() -> None:
        for batch in batches:
            trainer.update([batch])

    return turn


def turn_of(name: str, size: Gpt) -> Callable[[], None]:
    """Some steps of a peer on as many random tokens, with torch as it comes."""
    peer, drawn = PEERS[name](size), torch.Generator().manual_seed(1)
    batches = torch.randint(size.vocabulary, (TURN, size.batch, size.block + 1), generator=drawn)

    def turn() -> None:
        for batch in batches:
            peer.update(batch)

    return turn
