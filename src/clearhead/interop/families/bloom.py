"""BLOOM: ALiBi, a norm after the embedding, LayerNorm before, GELU by tanh; q, k, v alternate head by head."""

from __future__ import annotations

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.gpt_neox import fused_block
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.table import within

LENGTH = 2048  # tokens that it was trained with; config.json does not say


@FAMILIES.register("bloom")
class Bloom(Family):
    """Decoder-only models with the parts of BLOOM."""

    prefix = "transformer"

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        settings.require("apply_residual_connection_post_layernorm", False)
        heads, longest = settings.size("n_head", "num_attention_heads"), settings.get("seq_length", LENGTH)
        tied = settings.tied("lm_head.weight", "word_embeddings.weight", True)
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
        ends = {
            "word_embeddings": "tokens.tokens.table",
            "word_embeddings_layernorm": "tokens.norm",
            "ln_f": "stack.norm",
        }
        output = {} if tied else {"lm_head": "output.linear"}
        language_model = Plan(
            task="lm",
            model=model,
            table={**within("h.*.", "stack.blocks.*.", fused_block("self_attention", heads)), **ends, **output},
            blocks={"decoder": ("h",)},
            data={"max_length": longest},
            skipped={"lm_head.weight": "the output is the embedding"} if tied else {},
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)
