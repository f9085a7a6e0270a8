"""Attention as it is learned: the attention weights of one validation example, written at each evaluation.

RUN/attention/step-00000500.safetensors     decoder.1.cross (H, T, S) in float16, and so on for every layer;
                                            the metadata holds the token strings at the edges of each kind

The weights are those of the explicit equation, for a text of at most `inputs.MAX_LOGGED` tokens. Nothing random is
used, and the same model gives the same bytes.

    H heads, T queries, S keys
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from clearhead.errors import RunError
from clearhead.files import read_tensors, write_errors, write_tensors
from clearhead.look.build import computed
from clearhead.look.inputs import Edges, PreparedInput
from clearhead.look.probes import probes

MAX_PATCHES = 65  # tokens of an image: 8 × 8 patches after a class token


@dataclass(frozen=True)
class AttentionSnapshot:
    """The attention weights of one evaluation."""

    weights: dict[str, Tensor]  # encoder.0.self, decoder.1.cross, …: (H, T, S) float16
    edges: dict[str, Edges]  # encoder.self, decoder.cross, …


def log_attention(folder: Path, step: int, model: nn.Module, example: PreparedInput) -> None:
    """Write the attention weights of an example; nothing for a model without attention."""
    weights = attention_weights(model, example)
    if not weights:
        return
    stored = {name: each[:, :MAX_PATCHES, :MAX_PATCHES].half().cpu().contiguous() for name, each in weights.items()}
    kinds = sorted({_kind(name) for name in weights})
    edges = {kind: [list(tokens[:MAX_PATCHES]) for tokens in example.edges[kind]] for kind in kinds}
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    # One entry only: safetensors writes several in no fixed order.
    write_tensors(folder / f"step-{step:08d}.safetensors", stored, {"edges": json.dumps(edges, ensure_ascii=False)})


def read_attention(path: Path) -> AttentionSnapshot:
    """Read what `log_attention` wrote."""
    weights, metadata = read_tensors(path)
    if "edges" not in metadata:
        raise RunError(f"{path} is not a file of attention weights: its metadata has no tokens")
    edges = {kind: (rows, columns) for kind, (rows, columns) in json.loads(metadata["edges"]).items()}
    return AttentionSnapshot(weights, edges)


def attention_weights(model: nn.Module, example: PreparedInput) -> dict[str, Tensor]:
    """The weights of every attention layer, (H, T, S), by stack, layer and kind; in evaluation mode."""
    names = [name for name in probes(model) if name.endswith(".weights")]
    seen = computed(model, example.inputs, *names) if names else {}
    return {name.removesuffix(".weights"): weights[0] for name, weights in seen.items()}


def _kind(name: str) -> str:
    """decoder.1.cross -> decoder.cross."""
    stack, _, kind = name.split(".")
    return f"{stack}.{kind}"
