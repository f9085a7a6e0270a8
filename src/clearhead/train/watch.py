"""Attention as it is learned: where the tokens of one validation example look, kept at each evaluation.

RUN/attention/step-00000500.safetensors     decoder.1.cross (H, T, S) in float16, and so on for every layer;
                                            the header holds the words at the edges of each kind

The weights are those of the explicit equation, for a text of at most `LONGEST` tokens. Nothing random is used, and the
same model gives the same bytes.

    H heads, T queries, S keys
"""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor, nn

from clearhead.files import write_errors, write_tensors
from clearhead.look.probes import probes
from clearhead.look.see import Example, computed, patch_names

__all__ = ["LONGEST", "PATCHES", "Example", "keep", "look", "patch_names"]

LONGEST = 48  # tokens of a text that are read
PATCHES = 65  # tokens of an image whose weights are kept: 8 × 8 patches after a class token


def keep(folder: Path, step: int, model: nn.Module, example: Example) -> None:
    """Write where the example looks at this step; nothing for a model without attention."""
    weights = look(model, example)
    if not weights:
        return
    kept = {name: each[:, :PATCHES, :PATCHES].half().cpu().contiguous() for name, each in weights.items()}
    kinds = sorted({_kind(name) for name in weights})
    edges = {kind: [list(words[:PATCHES]) for words in example.edges[kind]] for kind in kinds}
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    # One entry only: the format keeps several in no order.
    write_tensors(folder / f"step-{step:08d}.safetensors", kept, {"edges": json.dumps(edges, ensure_ascii=False)})


def look(model: nn.Module, example: Example) -> dict[str, Tensor]:
    """The weights of every attention layer for the example, (H, T, S), by stack, layer and kind; in evaluation mode."""
    names = [name for name in probes(model) if name.endswith(".weights")]
    seen = computed(model, example.inputs, *names) if names else {}
    return {name.removesuffix(".weights"): weights[0] for name, weights in seen.items()}


def _kind(name: str) -> str:
    """decoder.1.cross -> decoder.cross."""
    stack, _, kind = name.split(".")
    return f"{stack}.{kind}"
