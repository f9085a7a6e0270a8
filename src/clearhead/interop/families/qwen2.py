"""Qwen 2: Llama with biases on queries, keys and values, and a window in some blocks."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig


def windows(settings: ForeignConfig) -> tuple[int | None, ...] | None:
    """The window of each block, where `layer_types` or `max_window_layers` give some one."""
    layers, window = settings.size("num_hidden_layers"), settings.get("sliding_window")
    if window is None or not settings.get("use_sliding_window", True):
        return None
    first = settings.get("max_window_layers", layers)
    kinds = settings.layer_kinds(["sliding_attention" if each >= first else "full_attention" for each in range(layers)])
    found = tuple(window if kind == "sliding_attention" else None for kind in kinds)
    return found if any(found) else None


@FAMILIES.register("qwen2")
class Qwen2(Llama):
    """Llama with some biases."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        found = {**super().model(settings), "attention_bias": "qkv"}
        if not settings.get("use_sliding_window", False):
            return found
        return {**found, "layer_windows": windows(settings)}
