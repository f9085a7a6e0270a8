"""Llama: rotary positions, key-value heads shared by groups, RMSNorm before, SwiGLU, no biases.

Mistral, Qwen and Phi-3 are variations of it: their files change some of its settings.
"""

from __future__ import annotations

from typing import Any, ClassVar

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.rope import reach, rotary_settings
from clearhead.interop.table import Into, within

ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
GATED_FEED_FORWARD = {"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}
BLOCK: dict[str, str | Into] = {
    **within("self_attn.", "self_attention.", ATTENTION),
    **within("mlp.", "feed_forward.", GATED_FEED_FORWARD),
    "input_layernorm": "residual1.norm",
    "post_attention_layernorm": "residual2.norm",
}


@FAMILIES.register("llama")
class Llama(Family):
    """Decoder-only models with the parts of Llama."""

    prefix = "model"
    usually_tied: ClassVar[bool] = False  # where config.json does not say
    rotates_partly: ClassVar[bool] = False  # whether the family knows heads of which only a part is rotated
    buffers = {"*rotary_emb.inv_freq": "rotary angles are computed"}

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        language_model = Plan(
            task="lm",
            model=self.model(settings),
            table=self.table(settings),
            blocks={"decoder": ("layers",)},
            data={"max_length": reach(settings)},
            skipped=self.skipped(settings),
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        """The `model` section."""
        heads, dim = settings.size("num_attention_heads"), settings.size("hidden_size")
        head_dim = settings.get("head_dim") or dim // heads
        longest = reach(settings)
        rotary = rotary_settings(settings, head_dim)
        if rotary["rotary_dim"] is not None and not self.rotates_partly:  # some programs rotate all, and some a part
            raise settings.refuse("partial_rotary_factor", head_dim and rotary["rotary_dim"] / head_dim)
        return {
            "dim": dim,
            "heads": heads,
            "kv_heads": settings.get("num_key_value_heads", heads),
            "key_dim": head_dim,
            "value_dim": head_dim,
            "layers": settings.size("num_hidden_layers"),
            "inner": settings.size("intermediate_size"),
            "norm": "rms",
            "norm_eps": settings.get("rms_norm_eps", 1e-6),
            "placement": "before",
            "feed_forward": settings.gated("hidden_act", "silu"),
            "bias": bool(settings.get("mlp_bias", False)),
            "attention_bias": "all" if settings.get("attention_bias", False) else "neither",
            "dropout": 0.0,
            "embedding_scale": 1.0,
            "tied": self.tied(settings),
            "max_length": longest,
            "length": longest,
            **rotary,
        }

    def tied(self, settings: ForeignConfig) -> bool:
        """Whether the output is the embedding; a model without a head has no other."""
        return settings.tied("lm_head.weight", "embed_tokens.weight", self.usually_tied)

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where each tensor goes."""
        ends = {"embed_tokens": "tokens.tokens.table", "norm": "stack.norm"}
        output = {} if self.tied(settings) else {"lm_head": "output.linear"}
        return {**within("layers.*.", "stack.blocks.*.", self.block(settings)), **ends, **output}

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where the tensors of one block go."""
        return BLOCK

    def skipped(self, settings: ForeignConfig) -> dict[str, str]:
        return {"lm_head.weight": "the output is the embedding"} if self.tied(settings) else {}
