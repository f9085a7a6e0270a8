"""Qwen 3: Llama whose queries and keys are normalised, and a window in some blocks."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.families.qwen2 import windows
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into


@FAMILIES.register("qwen3")
class Qwen3(Llama):
    """Llama with a norm in every head."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        head_dim = settings.get("head_dim", 128)
        found = {**super().model(settings), "key_dim": head_dim, "value_dim": head_dim, "head_norm": "rms"}
        if not settings.get("use_sliding_window", False):
            return found
        return {**found, "layer_windows": windows(settings)}

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        norms: dict[str, str | Into] = {
            "self_attn.q_norm": "self_attention.query_norm",
            "self_attn.k_norm": "self_attention.key_norm",
        }
        return {**super().block(settings), **norms}
