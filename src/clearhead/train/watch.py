"""Attention as it is learned: where the tokens of one validation example look, kept at each evaluation.

RUN/attention/step-00000500.safetensors     decoder.1.cross (H, T, S) in float16, and so on for every layer;
                                            the header holds the words at the edges of each kind

The weights are those of the explicit equation, for a text of at most `LONGEST` tokens. Nothing random is used, and the
same model gives the same bytes.

    H heads, T queries, S keys
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import RunError
from clearhead.look.capture import captured
from clearhead.models.rnn import AttentionDecoder
from clearhead.models.rnn_seq2seq import RnnSeq2Seq
from clearhead.train.run import read_tensors, write_tensors, writing

LONGEST = 48  # tokens of a text that are read
PATCHES = 65  # tokens of an image whose weights are kept: 8 × 8 patches after a class token

Edges = tuple[Sequence[str], Sequence[str]]  # a word for each query, and one for each key


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
class Attention:
    """What was kept at one evaluation."""

    weights: dict[str, Tensor]  # encoder.0.self, decoder.1.cross, …: (H, T, S) float16
    edges: dict[str, Edges]  # encoder.self, decoder.cross, …


def keep(folder: Path, step: int, model: nn.Module, example: Example) -> None:
    """Write where the example looks at this step; nothing for a model without attention."""
    weights = look(model, example)
    if not weights:
        return
    kept = {name: each[:, :PATCHES, :PATCHES].half().cpu().contiguous() for name, each in weights.items()}
    kinds = sorted({_kind(name) for name in weights})
    edges = {kind: [list(words[:PATCHES]) for words in example.edges[kind]] for kind in kinds}
    with writing(folder):
        folder.mkdir(exist_ok=True)
    # One entry only: the format keeps several in no order.
    write_tensors(folder / f"step-{step:08d}.safetensors", kept, {"edges": json.dumps(edges, ensure_ascii=False)})


def read_attention(path: Path) -> Attention:
    """What `keep` wrote."""
    weights, header = read_tensors(path)
    if "edges" not in header:
        raise RunError(f"{path} is not a file of attention weights: its header names no words")
    return Attention(weights, {kind: (rows, columns) for kind, (rows, columns) in json.loads(header["edges"]).items()})


def look(model: nn.Module, example: Example) -> dict[str, Tensor]:
    """The weights of every attention layer for the example, (H, T, S), by stack, layer and kind; in evaluation mode."""
    training, place = model.training, next(model.parameters()).device
    inputs = tuple(tensor.to(place) for tensor in example.inputs)
    model.eval()
    try:
        with torch.inference_mode(), captured(_layers(model, example)) as seen:
            model(*inputs)
            seen.update(_alignment(model, inputs))
    finally:
        model.train(training)
    return {name: weights[0] for name, weights in seen.items()}


def _layers(model: nn.Module, example: Example) -> dict[str, Any]:
    """The attention layers of a model; a stack that is no decoder is an encoder, where the example has one."""
    found = {}
    for path, module in model.named_modules():
        match path.split("."):
            case [*_, stack, "blocks", number, ("self_attention" | "cross_attention") as kind]:
                name = "decoder" if stack == "decoder" or not example.encoder else "encoder"
                found[f"{name}.{number}.{kind.removesuffix('_attention')}"] = module
    return found


def _alignment(model: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """What a recurrent translator with attention looks at: one layer of one head, (1, 1, T, S)."""
    if isinstance(model, RnnSeq2Seq) and isinstance(model.decoder, AttentionDecoder):
        return {"decoder.0.cross": model.alignment(*inputs).unsqueeze(1)}
    return {}


def _kind(name: str) -> str:
    """decoder.1.cross -> decoder.cross."""
    stack, _, kind = name.split(".")
    return f"{stack}.{kind}"


def patch_names(images: Tensor, patch: int) -> list[str]:
    """The patches of images (B, C, height, width), row by row: their places, counted from 1."""
    rows, columns = images.size(-2) // patch, images.size(-1) // patch
    return [f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]
