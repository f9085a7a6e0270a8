"""GPT-NeoX (Pythia): LayerNorm before, attention and feed-forward side by side, a part of every head rotated.

Queries, keys and values are one matrix, in which they alternate head by head.
"""

from __future__ import annotations

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.gpt2 import QKV
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.rope import rotary_settings
from clearhead.interop.table import Into, into, regrouped, within


def fused_block(attention: str, heads: int) -> dict[str, str | Into]:
    """Where the tensors of a block go whose queries, keys and values alternate head by head; BLOOM's too."""
    return {
        f"{attention}.query_key_value": into(*QKV, change=regrouped(heads)),
        f"{attention}.dense": "self_attention.output",
        "mlp.dense_h_to_4h": "feed_forward.inner",
        "mlp.dense_4h_to_h": "feed_forward.outer",
        "input_layernorm": "residual1.norm",
        "post_attention_layernorm": "residual2.norm",
    }


@FAMILIES.register("gpt_neox")
class GptNeox(Family):
    """Decoder-only models with the parts of GPT-NeoX."""

    prefix = "gpt_neox"
    buffers = {
        "layers.*.attention.bias": "the causal mask is computed",
        "layers.*.attention.masked_bias": "the causal mask is computed",
        "*rotary_emb.inv_freq": "rotary angles are computed",
    }

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        dim, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
        longest = settings.size("max_position_embeddings")
        tied = settings.tied("embed_out.weight", "embed_in.weight", False)
        model = {
            "dim": dim,
            "heads": heads,
            "layers": settings.size("num_hidden_layers"),
            "inner": settings.size("intermediate_size"),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_eps", 1e-5),
            "placement": "before",
            "parallel": bool(settings.get("use_parallel_residual", True)),
            "feed_forward": settings.activation("hidden_act", "gelu"),
            "attention_bias": "all" if settings.get("attention_bias", True) else "neither",
            "dropout": settings.get("hidden_dropout", 0.0),
            "embedding_scale": 1.0,
            "tied": tied,
            "max_length": longest,
            "length": longest,
            **rotary_settings(settings, dim // heads, usual_share=0.25),
        }
        ends = {"embed_in": "tokens.tokens.table", "final_layer_norm": "stack.norm"}
        output = {} if tied else {"embed_out": "output.linear"}
        language_model = Plan(
            task="lm",
            model=model,
            table={**within("layers.*.", "stack.blocks.*.", fused_block("attention", heads)), **ends, **output},
            blocks={"decoder": ("layers",)},
            data={"max_length": longest},
            skipped={"embed_out.weight": "the output is the embedding"} if tied else {},
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)
