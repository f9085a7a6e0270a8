"""StarCoder 2: Llama with LayerNorm, a plain feed-forward network, biases, and perhaps a window."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import ATTENTION, Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into, within


@FAMILIES.register("starcoder2")
class Starcoder2(Llama):
    """Decoder-only models with the parts of StarCoder 2."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("mlp_type", "default")
        biased = bool(settings.get("use_bias", True))
        return {
            **super().model(settings),
            "norm": "layer",
            "norm_eps": settings.get("norm_epsilon", 1e-5),
            "feed_forward": settings.activation("hidden_act", "gelu_pytorch_tanh"),
            "bias": biased,
            "attention_bias": "all" if biased else "neither",
            "window": settings.get("sliding_window"),
            "dropout": settings.get("residual_dropout", 0.0),
        }

    def tied(self, settings: ForeignConfig) -> bool:
        return bool(settings.get("tie_word_embeddings", True)) or super().tied(settings)

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {
            **within("self_attn.", "self_attention.", ATTENTION),
            "mlp.c_fc": "feed_forward.inner",
            "mlp.c_proj": "feed_forward.outer",
            "input_layernorm": "residual1.norm",
            "post_attention_layernorm": "residual2.norm",
        }
