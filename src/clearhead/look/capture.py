"""What attention layers looked at, while the model computes as always.

    with captured({"cross": layer}) as seen:
        model(source, target)
    seen["cross"]                # (B, H, T, S), by the explicit equation

The fused kernel keeps no weights: they are computed again from what went into the layer. The hooks are gone
afterwards, whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from clearhead.nn import MultiHeadAttention


@contextmanager
def captured(layers: Mapping[str, MultiHeadAttention]) -> Iterator[dict[str, Tensor]]:
    """Record the weights of some layers, by name; a layer that is called twice keeps its last."""
    seen: dict[str, Tensor] = {}

    def recorder(name: str) -> Any:
        def record(layer: MultiHeadAttention, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            with torch.no_grad():
                seen[name] = layer.weights(*arguments, **{key: named[key] for key in named if key != "cache"})

        return record

    hooks = [layer.register_forward_pre_hook(recorder(name), with_kwargs=True) for name, layer in layers.items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
