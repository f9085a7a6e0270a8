"""Small models of every task with unequal sizes and fixed random weights."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from clearhead.run import ModelMeta, Run, Sizes
from clearhead.tasks import default_config, override_config, run_config
from clearhead.tasks.base.network import build_network, save_weights
from clearhead.text import Tokenizer

SMALL = ["model.dim=12", "model.heads=3", "model.layers=2", "model.inner=17", "model.dropout=0"]
WORDS = "we are eating bread and drinking water near the old house with a small red door ."
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,:;!?\n'-"
DIGITS = tuple("0123456")


def make(path: Path, task: str, kind: str | None, text: str, *settings: str, labels: Sequence[str] = ()) -> None:
    """A run directory."""
    image = ["model.patch=2"] if task in ("vision", "caption") else []
    small = ["model.dim=7"] if task == "words" else SMALL
    run = Run.create(path, override_config(default_config(task), [*small, *image, *settings]))
    vocabulary, pad = 0, 0
    if kind is not None:
        tokenizer = Tokenizer.train(kind, [text], size=300)
        tokenizer.save(path / "tokenizer.json")
        vocabulary, pad = len(tokenizer), tokenizer.pad
    sizes = Sizes(vocabulary, len(labels), channels=1, height=10, width=10, pad=pad)
    torch.manual_seed(5)
    network = build_network(run_config(run), sizes)
    with torch.no_grad():  # far from equal choices, so that nothing hangs on the last digit
        for weight in network.parameters():
            weight.mul_(1.7)
    save_weights(run, run_config(run), network.state_dict(), ModelMeta(sizes, tuple(labels)))


def make_all(folder: Path) -> list[str]:
    """One of each, by path."""
    make(folder / "translator", "translate", "word", WORDS)
    make(folder / "writer", "lm", "char", CHARACTERS)
    make(folder / "learned", "lm", "bytes", WORDS * 3, "model.positions=learned", "model.max_length=23")
    make(folder / "recurrent", "lm", "char", CHARACTERS, "model.architecture=rnn")
    make(folder / "masked", "lm", "char", CHARACTERS, "model.objective=masked")
    make(folder / "critic", "classify", "word", WORDS, labels=("bad", "good", "odd"))
    make(folder / "eyes", "vision", None, "", labels=DIGITS)
    make(folder / "painter", "caption", "word", WORDS)
    make(folder / "tagger", "tag", "word", WORDS, labels=("noun", "verb", "other"))
    make(folder / "vectors", "words", "word", WORDS)
    return [str(path) for path in sorted(folder.iterdir())]


def sentences(count: int, seed: int = 1) -> list[str]:
    """Different sentences of different lengths."""
    draw, words = np.random.default_rng(seed), WORDS.split()
    return [" ".join(draw.choice(words, size=int(draw.integers(1, 12)))) for _ in range(count)]


def png(width: int = 13, height: int = 11, mode: str = "RGB", seed: int = 3) -> bytes:
    """A picture of noise."""
    channels = {"RGB": (3,), "L": ()}[mode]
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, *channels), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "PNG")
    return stream.getvalue()
