"""Marian (OPUS-MT): the Transformer of the paper, with sines before cosines, and a bias at the output.

BART and M2M100 have the same names for their blocks: their files change settings.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

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
TARGET_VOCABULARY = "target_vocab.json"  # of a model that writes other tokens than it reads
ONE_ROW = Change(lambda x: x.flatten(), lambda x: x.unsqueeze(0))  # (1, V) -> (V,)


@FAMILIES.register("marian")
class Marian(Family):
    """Encoder-decoder models with the parts of Marian."""

    prefix = "model"
    placement = "after"  # of the norms; "before" has one more after the last block of each side
    buffers = {
        "*.embed_positions.weight*": "sines are computed",
    }
    starts: ClassVar[tuple[str, ...]] = ("eos_token_id",)  # what a translation begins with where nothing says it

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        if settings.head not in ("ForConditionalGeneration", "MTModel", "Model"):
            raise settings.wrong_head("ForConditionalGeneration", "MTModel")
        for what in ("attention_heads", "ffn_dim"):
            if settings.size(f"encoder_{what}") != settings.size(f"decoder_{what}"):
                raise settings.refuse(f"decoder_{what}")
        generation = settings.get("generation_config", {})
        forced = settings.get("forced_bos_token_id", generation.get("forced_bos_token_id"))
        start = generation.get("decoder_start_token_id", settings.get("decoder_start_token_id"))
        start = next((id for id in (start, *map(settings.get, self.starts)) if id is not None), None)
        vectors, skipped = self.token_vectors(settings)
        model = self.model(settings)
        if "source.tokens.table" in vectors.values():
            model["source_input"] = "own"
        elif "output.linear" in vectors.values():
            model.setdefault("source_input", "shared")
        return Plan(
            task="translate",
            model={**model, "tied": "output.linear" not in vectors.values()},
            table={**self.table(settings), **vectors},
            blocks={"encoder": ("encoder.layers",), "decoder": ("decoder.layers",)},
            data={"max_length": settings.size("max_position_embeddings")},
            skipped=skipped,
            roles={"start": start, "forced": forced},
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
        }

    def token_vectors(self, settings: ForeignConfig) -> tuple[dict[str, str], dict[str, str]]:
        """Where the token vectors of each side and the output go, and which of them are not needed.

        They are one matrix, unless config.json says otherwise and the file has others.
        """
        source, target, both, output = "encoder.embed_tokens", "decoder.embed_tokens", "shared", "lm_head"
        stored = {
            name: tensors[full]
            for tensors in (settings.checkpoint.tensors,)
            for name in (source, target, both, output)
            for full in (f"{name}.weight", f"{self.prefix}.{name}.weight")
            if full in tensors
        }
        shared, tied = (settings.get(n, True) for n in ("share_encoder_decoder_embeddings", "tie_word_embeddings"))
        found: dict[str, str] = {}
        if source in stored and target in stored and not (shared and tied):
            if len(stored[source]) != len(stored[target]) or (settings.checkpoint.source / TARGET_VOCABULARY).exists():
                raise settings.refuse("share_encoder_decoder_embeddings")
            if not torch.equal(stored[source], stored[target]):
                found[source] = "source.tokens.table"
            found[target] = "target.tokens.table"
        elif both in stored or target in stored:
            found[both if both in stored else target] = "target.tokens.table"
        else:
            raise RunError(f"{settings.checkpoint.source} has no token vectors (model.shared.weight)")
        if output in stored and not tied:
            found[output] = "output.linear"
        reasons = {output: "the output is the embedding"}
        unused = [name for name in stored if name not in found]
        return found, {f"{name}.weight": reasons.get(name, "both sides share their token vectors") for name in unused}

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where each tensor goes."""
        last = {f"{side}.layer_norm": f"{side}.norm" for side in ("encoder", "decoder")}
        return {
            **(last if self.placement == "before" else {}),
            **within("encoder.layers.*.", "encoder.blocks.*.", ENCODER),
            **within("decoder.layers.*.", "decoder.blocks.*.", DECODER),
            "final_logits_bias": into("output.linear.bias", change=ONE_ROW),
        }
