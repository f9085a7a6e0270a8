"""From a model and one example to a `Look`: all that was computed, with a word for every token.

B batch (of one), H heads, G key-value heads, T queries or tokens, S keys, D size of a vector
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.look.look import Look
from clearhead.look.probes import capture, probes
from clearhead.look.record import TENSORS, AttentionRecord
from clearhead.nn.attention import share_heads

Edges = tuple[Sequence[str], Sequence[str]]  # a word for each query, and one for each key
SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}  # of tokens that would not be seen


@dataclass(frozen=True)
class Example:
    """One example: what the model is called with, and what its tokens are called by people."""

    inputs: tuple[Tensor, ...]  # each a batch of one
    encoder: Sequence[str] = ()  # what an encoder reads
    decoder: Sequence[str] = ()  # what a decoder, or a model that is only one, reads
    written: Sequence[str] = ()  # what the decoder is to write after each token it has read

    @property
    def edges(self) -> dict[str, Edges]:
        """The words at the edges of each kind of attention; a row of cross-attention is a token that is written."""
        return {
            "encoder.self": (self.encoder, self.encoder),
            "decoder.self": (self.decoder, self.decoder),
            "decoder.cross": (self.written, self.encoder),
        }


@dataclass(frozen=True)
class About:
    """What a look says of the model and the input, besides the numbers."""

    model: str
    task: str
    text: str  # the input as given, or the name of the image
    answer: Callable[[Tensor], str]  # logits (T, V) or (V,) -> what people are told
    choices: tuple[str, ...] = ()  # what the V logits are about
    image: Tensor | None = None  # (height, width, channels) uint8
    grid: tuple[int, int] | None = None  # rows and columns of patches
    class_token: bool = False


def see(network: nn.Module, example: Example, about: About) -> Look:
    """Let a model read one example, and keep all that it computes."""
    seen = computed(network, example.inputs, *wanted(network))
    return look_of(network, example, about, {name: tensor[0].cpu() for name, tensor in seen.items()})


def look_of(network: nn.Module, example: Example, about: About, seen: dict[str, Tensor]) -> Look:
    """All that was computed for an example, by probe and without the batch, with what is said of it."""
    tokens = {"encoder": list(example.encoder), "decoder": list(example.decoder)}
    return Look(
        model=about.model,
        task=about.task,
        text=about.text,
        attention={kind: attended(seen, kind, *example.edges[kind]) for kind in kinds(seen)},
        tokens={stack: words for stack, words in tokens.items() if words},
        hidden={stack: hidden(seen, stack) for stack in tokens if f"{stack}.embedded" in seen},
        logits=seen["logits"],
        output=about.answer(seen["logits"]),
        choices=about.choices,
        image=about.image,
        grid=about.grid,
        class_token=about.class_token,
        network=network,
        inputs=example.inputs,
    )


def computed(network: nn.Module, inputs: Sequence[Tensor], *patterns: str) -> dict[str, Tensor]:
    """What the patterns name when the network reads the inputs, without dropout and where the network is."""
    place = next(network.parameters()).device
    with evaluating(network), torch.no_grad(), capture(network, *patterns, stop=True) as seen:
        network(*(tensor.to(place) for tensor in inputs))
    return seen


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In evaluation mode, and afterwards in the mode it was in."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


def wanted(network: nn.Module) -> list[str]:
    """The probes that a look is made of."""
    ends = ("embedded", "hidden", "logits", "visible", *TENSORS)
    return [name for name in probes(network) if name.split(".")[-1] in ends]


def kinds(names: Sequence[str] | dict[str, Tensor]) -> list[str]:
    """The kinds of attention among some probes: encoder.0.self.weights -> encoder.self."""
    found = (name.split(".") for name in names if name.endswith(".weights"))
    return list(dict.fromkeys(f"{stack}.{part}" for stack, _, part, _ in found))


def attended(seen: dict[str, Tensor], kind: str, rows: Sequence[str], columns: Sequence[str]) -> AttentionRecord:
    """One kind of attention, from all probes of an example, (H, T, S) and so on."""
    stack, part = kind.split(".")
    layers = {name: layers_of(seen, stack, f"{part}.{name}") for name in ("visible", *TENSORS)}
    heads = len(layers["weights"][0])
    visible = layers["visible"][0]  # (T, S), the same in every layer
    return AttentionRecord(
        rows=list(rows),
        columns=list(columns),
        causal=kind == "decoder.self" and not visible.triu(1).any(),
        visible=visible,
        weights=layers["weights"],
        scores=layers["scores"],
        query=layers["query"],
        key=[share_heads(key[None], heads)[0] for key in layers["key"]],
        value=[share_heads(value[None], heads)[0] for value in layers["value"]],
    )


def hidden(seen: dict[str, Tensor], stack: str) -> list[Tensor]:
    """What was embedded, and what each layer made of it: each (T, D)."""
    return [seen[f"{stack}.embedded"], *(layers_of(seen, stack, "hidden") or layers_of(seen, stack, "cell.hidden"))]


def layers_of(seen: dict[str, Tensor], stack: str, what: str) -> list[Tensor]:
    """The same probe of every layer, from the first on."""
    found: list[Tensor] = []
    while (name := f"{stack}.{len(found)}.{what}") in seen:
        found.append(seen[name])
    return found


def readable(piece: str) -> str:
    """A token as people write it: without the mark of a blank before it, and never empty."""
    word = piece.replace("▁", " ")
    return word.strip() or "".join(SIGNS.get(letter, letter) for letter in word) or "·"


def patch_names(images: Tensor, patch: int) -> list[str]:
    """The patches of images (B, C, height, width), row by row: their places, counted from 1."""
    rows, columns = images.size(-2) // patch, images.size(-1) // patch
    return [f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]
