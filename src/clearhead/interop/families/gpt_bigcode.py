"""GPT BigCode (SantaCoder, StarCoder): GPT-2 whose heads share one key and value; matrices are stored (out, in)."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.gpt2 import BLOCK, QKV, Gpt2
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into, into


@FAMILIES.register("gpt_bigcode")
class GptBigcode(Gpt2):
    """Decoder-only models with the parts of StarCoder."""

    causal_lm = "ForCausalLM"
    usual_activation = "gelu_pytorch_tanh"

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {**super().model(settings), "kv_heads": 1}

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        settings.require("multi_query", True)
        dim = settings.size("n_embd")
        shared = dim // settings.size("n_head")
        plain = {name: place.names[0] for name, place in BLOCK.items() if isinstance(place, Into)}
        return {**BLOCK, **plain, "attn.c_attn": into(*QKV, sizes=(dim, shared, shared))}
