"""BLOOM: ALiBi, a norm after the embedding, LayerNorm before, GELU by tanh; q, k, v alternate head by head."""

from __future__ import annotations

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.gpt2 import QKV
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan
from clearhead.interop.table import Into, into, regrouped, within

LENGTH = 2048  # tokens that it was trained with; config.json does not say


@FAMILIES.register("bloom")
class Bloom(Family):
    """Decoder-only models with the parts of BLOOM."""

    prefix = "transformer"

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        if settings.head not in ("ForCausalLM", "Model"):
            raise settings.wrong_head("ForCausalLM")
        settings.require("apply_residual_connection_post_layernorm", False)
        heads, longest = settings.size("n_head", "num_attention_heads"), settings.get("seq_length", LENGTH)
        tied = bool(settings.get("tie_word_embeddings", True)) or "lm_head.weight" not in checkpoint.tensors
        model = {
            "dim": settings.size("hidden_size", "n_embed"),
            "heads": heads,
            "layers": settings.size("n_layer", "num_hidden_layers"),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_epsilon", 1e-5),
            "placement": "before",
            "feed_forward": "gelu_tanh",
            "positions": "alibi",
            "dropout": settings.get("hidden_dropout", 0.0),
            "embedding_scale": 1.0,
            "embedding_norm": True,
            "tied": tied,
            "length": longest,
        }
        block: dict[str, str | Into] = {
            "self_attention.query_key_value": into(*QKV, change=regrouped(heads)),
            "self_attention.dense": "self_attention.output",
            "mlp.dense_h_to_4h": "feed_forward.inner",
            "mlp.dense_4h_to_h": "feed_forward.outer",
            "input_layernorm": "residual1.norm",
            "post_attention_layernorm": "residual2.norm",
        }
        ends = {
            "word_embeddings": "tokens.tokens.table",
            "word_embeddings_layernorm": "tokens.norm",
            "ln_f": "stack.norm",
        }
        output = {} if tied else {"lm_head": "output.linear"}
        return Plan(
            task="lm",
            model=model,
            table={**within("h.*.", "stack.blocks.*.", block), **ends, **output},
            blocks={"decoder": ("h",)},
            data={"max_length": longest},
            skipped={"lm_head.weight": "the output is the embedding"} if tied else {},
            vocabulary="tokens.tokens.table.weight",
        )
