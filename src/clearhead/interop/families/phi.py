"""Phi (1, 1.5, 2): attention and feed-forward side by side after one LayerNorm, a part of each head rotated, biases."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.rope import rotary_settings
from clearhead.interop.table import TWICE, Into, into, within

ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "dense": "output"}
BOTH_NORMS = into("residual1.norm", "residual2.norm", change=TWICE)  # attention and feed-forward read the same


@FAMILIES.register("phi")
class Phi(Llama):
    """Decoder-only models with the parts of Phi."""

    rotates_partly = True

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        head_dim = settings.size("hidden_size") // settings.size("num_attention_heads")
        return {
            **super().model(settings),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_eps", 1e-5),
            "parallel": True,
            "head_norm": "layer" if settings.get("qk_layernorm", False) else None,
            "feed_forward": settings.activation("hidden_act", "gelu_new"),
            "bias": True,
            "attention_bias": "all",
            "output_bias": "lm_head.bias" in settings.checkpoint.tensors,
            "dropout": settings.get("resid_pdrop", 0.0),
            **rotary_settings(settings, head_dim, usual_share=0.5),
        }

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {
            **within("self_attn.", "self_attention.", ATTENTION),
            "self_attn.q_layernorm": "self_attention.query_norm",
            "self_attn.k_layernorm": "self_attention.key_norm",
            "mlp.fc1": "feed_forward.inner",
            "mlp.fc2": "feed_forward.outer",
            "input_layernorm": BOTH_NORMS,
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        found = {name: place for name, place in super().table(settings).items() if name != "norm"}
        return {**found, "final_layernorm": "stack.norm", "lm_head.bias": "output.linear.bias"}
