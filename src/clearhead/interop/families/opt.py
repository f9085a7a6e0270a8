"""OPT: learned positions, which begin at 2, LayerNorm before, ReLU; its output is the embedding."""

from __future__ import annotations

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.bart import FIRST
from clearhead.interop.families.marian import ENCODER
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan, decoder_plan
from clearhead.interop.table import Into, into, within, without_rows


@FAMILIES.register("opt")
class Opt(Family):
    """Decoder-only models with the parts of OPT."""

    prefix = "model"

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        settings.check_decoder()
        dim, longest = settings.size("hidden_size"), settings.size("max_position_embeddings")
        settings.require("word_embed_proj_dim", dim)
        settings.require("enable_bias", True)
        settings.require("layer_norm_elementwise_affine", True)
        settings.require("_remove_final_layer_norm", False)
        tied = bool(settings.get("tie_word_embeddings", True)) or "lm_head.weight" not in checkpoint.tensors
        before = bool(settings.get("do_layer_norm_before", True))
        model = {
            "dim": dim,
            "heads": settings.size("num_attention_heads"),
            "layers": settings.size("num_hidden_layers"),
            "inner": settings.size("ffn_dim"),
            "norm": "layer",
            "norm_eps": 1e-5,
            "placement": "before" if before else "after",
            "feed_forward": settings.activation("activation_function", "relu"),
            "positions": "learned",
            "max_length": longest,
            "length": longest,
            "dropout": settings.get("dropout", 0.1),
            "embedding_scale": 1.0,
            "tied": tied,
        }
        ends: dict[str, str | Into] = {
            "embed_tokens": "tokens.tokens.table",
            "embed_positions": into("tokens.positions.table", change=without_rows(FIRST)),
            **({"final_layer_norm": "stack.norm"} if before else {}),
        }
        output = {} if tied else {"lm_head": "output.linear"}
        body = {**within("layers.*.", "stack.blocks.*.", ENCODER), **ends}
        language_model = Plan(
            task="lm",
            model=model,
            table={**within("decoder.", "", body), **output},
            blocks={"decoder": ("decoder.layers",)},
            data={"max_length": longest},
            skipped={"lm_head.weight": "the output is the embedding"} if tied else {},
            vocabulary="tokens.tokens.table.weight",
        )
        return decoder_plan(settings, language_model)
