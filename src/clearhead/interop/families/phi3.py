"""Phi-3: Llama whose queries, keys and values are one matrix, like gate and inner layer, and with a window."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.gpt2 import QKV
from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into, into


@FAMILIES.register("phi3")
class Phi3(Llama):
    """Llama with joined matrices."""

    rotates_partly = True

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {**super().model(settings), "window": settings.get("sliding_window")}

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        heads = settings.size("num_attention_heads")
        head_dim = settings.get("head_dim") or settings.size("hidden_size") // heads
        shared = settings.get("num_key_value_heads", heads) * head_dim
        return {
            "self_attn.qkv_proj": into(*QKV, sizes=(heads * head_dim, shared, shared)),
            "self_attn.o_proj": "self_attention.output",
            "mlp.gate_up_proj": into("feed_forward.gate", "feed_forward.inner"),
            "mlp.down_proj": "feed_forward.outer",
            "input_layernorm": "residual1.norm",
            "post_attention_layernorm": "residual2.norm",
        }
