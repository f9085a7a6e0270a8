"""OLMo 2: Llama whose norms stand after each part, and normalise queries and keys of all heads together."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into


@FAMILIES.register("olmo2")
class Olmo2(Llama):
    """Decoder-only models with the parts of OLMo 2."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {**super().model(settings), "placement": "output", "joint_norm": "rms"}

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        norms: dict[str, str | Into] = {
            "self_attn.q_norm": "self_attention.query_norm.norm",
            "self_attn.k_norm": "self_attention.key_norm.norm",
            "post_attention_layernorm": "residual1.norm",
            "post_feedforward_layernorm": "residual2.norm",
        }
        return {name: place for name, place in super().block(settings).items() if "norm" not in name} | norms
