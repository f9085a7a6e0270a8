"""StableLM: Llama with LayerNorm and a part of every head rotated; attention and feed-forward may be side by side."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.families.phi import BOTH_NORMS
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.rope import rotary_settings
from clearhead.interop.table import Into


@FAMILIES.register("stablelm")
class StableLm(Llama):
    """Decoder-only models with the parts of StableLM."""

    rotates_partly = True

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("qk_layernorm", False)
        head_dim = settings.size("hidden_size") // settings.size("num_attention_heads")
        return {
            **super().model(settings),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_eps", 1e-5),
            "parallel": bool(settings.get("use_parallel_residual", False)),
            "attention_bias": "qkv" if settings.get("use_qkv_bias", False) else "neither",
            "dropout": settings.get("hidden_dropout", 0.0),
            **rotary_settings(settings, head_dim, usual_share=settings.get("rope_pct", 0.25)),
        }

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        shared: dict[str, str | Into] = {"input_layernorm": BOTH_NORMS}
        return super().block(settings) | (shared if settings.get("use_parallel_residual", False) else {})
