"""Marian (OPUS-MT): the Transformer of the paper, with sines before cosines, and a bias at the output.

BART and M2M100 have the same names for their blocks: their files change settings.
"""

from __future__ import annotations

from typing import Any

from clearhead.errors import RunError
from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan
from clearhead.interop.table import Change, Into, into, within

ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
SELF: dict[str, str | Into] = {
    **within("self_attn.", "self_attention.", ATTENTION),
    "self_attn_layer_norm": "residual1.norm",
    "fc1": "feed_forward.inner",
    "fc2": "feed_forward.outer",
}
CROSS: dict[str, str | Into] = {
    **within("encoder_attn.", "cross_attention.", ATTENTION),
    "encoder_attn_layer_norm": "residual2.norm",
}
ENCODER: dict[str, str | Into] = {**SELF, "final_layer_norm": "residual2.norm"}
DECODER: dict[str, str | Into] = {**SELF, **CROSS, "final_layer_norm": "residual3.norm"}
ONE_ROW = Change(lambda x: x.flatten(), lambda x: x.unsqueeze(0))  # (1, V) -> (V,)


@FAMILIES.register("marian")
class Marian(Family):
    """Encoder-decoder models with the parts of Marian."""

    prefix = "model"
    placement = "after"  # of the norms; "before" has one more after the last block of each side
    buffers = {
        "encoder.embed_tokens.weight": "both sides share their token vectors",
        "decoder.embed_tokens.weight": "both sides share their token vectors",
        "*.embed_positions.weight*": "sines are computed",
        "lm_head.weight": "the output is the embedding",
    }

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        if settings.head not in ("ForConditionalGeneration", "MTModel", "Model"):
            raise settings.wrong_head("ForConditionalGeneration", "MTModel")
        for what in ("attention_heads", "ffn_dim"):
            if settings.size(f"encoder_{what}") != settings.size(f"decoder_{what}"):
                raise settings.refuse(f"decoder_{what}")
        settings.require("share_encoder_decoder_embeddings", True)
        settings.require("tie_word_embeddings", True)
        if "shared.weight" not in checkpoint.tensors and "model.shared.weight" not in checkpoint.tensors:
            raise RunError(f"{checkpoint.source} has no shared token vectors (model.shared.weight)")
        forced = settings.get("forced_bos_token_id", settings.get("generation_config", {}).get("forced_bos_token_id"))
        return Plan(
            task="translate",
            model=self.model(settings),
            table=self.table(settings),
            blocks={"encoder": ("encoder.layers",), "decoder": ("decoder.layers",)},
            data={"max_length": settings.size("max_position_embeddings")},
            roles={"start": settings.get("decoder_start_token_id", settings.get("eos_token_id")), "forced": forced},
            vocabulary="target.tokens.table.weight",
        )

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        """The `model` section."""
        dim = settings.size("d_model")
        return {
            "dim": dim,
            "heads": settings.size("encoder_attention_heads"),
            "layers": settings.size("encoder_layers"),
            "decoder_layers": settings.size("decoder_layers"),
            "inner": settings.size("encoder_ffn_dim"),
            "norm": "layer",
            "placement": self.placement,
            "feed_forward": settings.activation("activation_function", "gelu"),
            "positions": "sinusoidal_halves",
            "max_length": settings.size("max_position_embeddings"),
            "dropout": settings.get("dropout", 0.1),
            "embedding_scale": dim**0.5 if settings.get("scale_embedding", False) else 1.0,
            "output_bias": "final_logits_bias" in settings.checkpoint.tensors,
            "tied": True,
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where each tensor goes."""
        last = {f"{side}.layer_norm": f"{side}.norm" for side in ("encoder", "decoder")}
        return {
            **(last if self.placement == "before" else {}),
            **within("encoder.layers.*.", "encoder.blocks.*.", ENCODER),
            **within("decoder.layers.*.", "decoder.blocks.*.", DECODER),
            "shared": "target.tokens.table",
            "final_logits_bias": into("output.linear.bias", change=ONE_ROW),
        }
