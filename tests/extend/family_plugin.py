"""A family of foreign models in one file: StableLM, which is Llama with LayerNorm and a part of every head rotated.

CLEARHEAD_PLUGINS=family_plugin.py clearhead import stablelm-2-1_6b --out runs/stablelm
"""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.rope import rotary_settings


@FAMILIES.register("stablelm")
class StableLm(Llama):
    """The names are Llama's; what differs is the `model` section."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("qk_layernorm", False)
        settings.require("use_parallel_residual", False)
        head_dim = settings.size("hidden_size") // settings.size("num_attention_heads")
        return {
            **super().model(settings),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_eps", 1e-5),
            "attention_bias": "qkv" if settings.get("use_qkv_bias", False) else "neither",
            **rotary_settings(settings, head_dim, usual_share=0.25),
        }
