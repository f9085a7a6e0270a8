"""Falcon: rotary positions, attention and feed-forward side by side, few key-value heads, q, k, v as one matrix."""

from __future__ import annotations

from typing import Any

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.gpt2 import QKV
from clearhead.interop.families.phi import BOTH_NORMS
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.rope import rotary_settings
from clearhead.interop.table import Into, into, key_value_groups, within

LENGTH = 2048  # tokens that it was trained with, where config.json does not say


@FAMILIES.register("falcon")
class Falcon(Family):
    """Decoder-only models with the parts of Falcon."""

    prefix = "transformer"
    buffers = {"*rotary_emb.inv_freq": "rotary angles are computed", "*maybe_rotary.*": "rotary angles are computed"}

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        settings.require("alibi", False)  # its slopes are rounded to bfloat16
        dim, heads = settings.size("hidden_size", "n_embed"), settings.size("num_attention_heads", "n_head")
        longest = settings.get("max_position_embeddings", LENGTH)
        biased = bool(settings.get("bias", False))
        tied = settings.tied("lm_head.weight", "word_embeddings.weight", True)
        model: dict[str, Any] = {
            "dim": dim,
            "heads": heads,
            "kv_heads": self.kv_heads(settings, heads),
            "layers": settings.size("num_hidden_layers", "n_layer"),
            "inner": settings.get("ffn_hidden_size"),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_epsilon", 1e-5),
            "placement": "before",
            "parallel": self.is_new(settings) or bool(settings.get("parallel_attn", True)),
            "feed_forward": settings.activation("activation", "gelu"),
            "bias": biased,
            "dropout": settings.get("hidden_dropout", 0.0),
            "embedding_scale": 1.0,
            "tied": tied,
            "max_length": longest,
            "length": longest,
            **rotary_settings(settings, dim // heads),
        }
        ends = {"word_embeddings": "tokens.tokens.table", "ln_f": "stack.norm"}
        output = {} if tied else {"lm_head": "output.linear"}
        block = self.block(settings, heads, model["kv_heads"])
        language_model = Plan(
            task="lm",
            model=model,
            table={**within("h.*.", "stack.blocks.*.", block), **ends, **output},
            blocks={"decoder": ("h",)},
            data={"max_length": longest},
            skipped={"lm_head.weight": "the output is the embedding"} if tied else {},
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)

    def is_new(self, settings: ForeignConfig) -> bool:
        """Whether it has the architecture of the 40B model."""
        return bool(settings.get("new_decoder_architecture", False))

    def kv_heads(self, settings: ForeignConfig, heads: int) -> int:
        if self.is_new(settings):
            return int(settings.get("num_kv_heads", settings.get("n_head_kv", heads)))
        return 1 if settings.get("multi_query", True) else heads

    def block(self, settings: ForeignConfig, heads: int, kv_heads: int) -> dict[str, str | Into]:
        """Where the tensors of one block go: it has one norm, or one for each part."""
        norms: dict[str, str | Into] = {"input_layernorm": BOTH_NORMS}
        if self.is_new(settings) and settings.get("num_ln_in_parallel_attn", 2) == 2:
            norms = {"ln_attn": "residual1.norm", "ln_mlp": "residual2.norm"}
        elif not self.is_new(settings) and not settings.get("parallel_attn", True):
            norms = {"input_layernorm": "residual1.norm", "post_attention_layernorm": "residual2.norm"}
        head_dim = settings.size("hidden_size", "n_embed") // heads
        sizes = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)
        return {
            "self_attention.query_key_value": into(
                *QKV, change=key_value_groups(heads // kv_heads, kv_heads), sizes=sizes
            ),
            "self_attention.dense": "self_attention.output",
            "mlp.dense_h_to_4h": "feed_forward.inner",
            "mlp.dense_4h_to_h": "feed_forward.outer",
            **norms,
        }
