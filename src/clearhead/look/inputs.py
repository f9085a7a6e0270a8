"""One item as a network reads it, with a string for every token: what generating, looking and the Studio start from.

A predictor makes it (`prepare`), whatever the item was: a sentence, an image, a prompt.

    H heads, T tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

MAX_LOGGED = 48  # tokens of the text whose attention is logged during training

TokenStrings = Sequence[str]
Edges = tuple[TokenStrings, TokenStrings]  # a string for each query, and one for each key

_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}  # for tokens that are nothing but white space


@dataclass(frozen=True)
class PreparedInput:
    """What a network is called with; every tensor is a batch of one."""

    sources: tuple[Tensor, ...] = ()  # what it reads: all of it, or what `start` reads before generation begins
    prompt: tuple[int, ...] = ()  # tokens that the decoder has read, and that generation continues
    encoder: TokenStrings = ()  # the tokens that an encoder reads
    decoder: TokenStrings = ()  # the tokens that a decoder, or a decoder-only model, reads
    output: TokenStrings = ()  # the token that the decoder writes after each token it has read

    stop: int | None = None  # the token that ends a generated text
    max_tokens: int = 40  # generated unless the user says otherwise
    beam_width: int = 1

    text: str = ""  # the item as given, or the name of the image
    choices: tuple[str, ...] = ()  # what each logit is about: tokens or labels
    image: Tensor | None = None  # (height, width, channels) uint8
    grid: tuple[int, int] | None = None  # rows and columns of patches
    class_token: bool = False  # one stands before the patches or tokens

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of `network.forward`."""
        return (*self.sources, torch.tensor([self.prompt])) if self.prompt else self.sources

    @property
    def edges(self) -> dict[str, Edges]:
        """The strings at the edges of each kind of attention; a row of cross-attention is a token being written."""
        return {
            "encoder.self": (self.encoder, self.encoder),
            "decoder.self": (self.decoder, self.decoder),
            "decoder.cross": (self.output, self.encoder),
        }

    def continued(self, ids: Sequence[int], tokens: TokenStrings, last: str | None) -> PreparedInput:
        """After the decoder has read `ids` too, whose strings are `tokens`; `last` is what it writes after them."""
        read = [*self.decoder[len(self.decoder) - len(self.prompt) :], *tokens]
        output = [*read[1:], *([] if last is None else [last])]
        return replace(self, prompt=(*self.prompt, *ids), decoder=[*self.decoder, *tokens], output=output)


def display_token(piece: str) -> str:
    """A token as people write it: without the mark of a word's beginning, and never invisible."""
    text = piece.replace("▁", " ")
    return text.strip() or "".join(_VISIBLE.get(letter, letter) for letter in text) or "·"


def patch_names(images: Tensor, patch: int) -> list[str]:
    """The patches of images (B, C, height, width), row by row: "1,1", "1,2", …"""
    rows, columns = images.size(-2) // patch, images.size(-1) // patch
    return [f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]
