"""T5: encoder and decoder, relative positions in the heads, RMSNorm before, no biases, scores without a scale.

Its output, where it is the embedding, is divided by √dim; this is built into the last norm.
"""

from __future__ import annotations

from typing import Any

import torch

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.family import ACTIVATIONS, FAMILIES, GATED, Family, ForeignConfig, Plan, sentence_plan
from clearhead.interop.table import Into, into, scaled, within

ATTENTION = {"q": "query", "k": "key", "v": "value", "o": "output"}
SELF: dict[str, str | Into] = {
    **within("layer.0.SelfAttention.", "self_attention.", ATTENTION),
    "layer.0.SelfAttention.relative_attention_bias": "self_attention.relative.table",
    "layer.0.layer_norm": "residual1.norm",
}
CROSS: dict[str, str | Into] = {
    **within("layer.1.EncDecAttention.", "cross_attention.", ATTENTION),
    "layer.1.layer_norm": "residual2.norm",
}
FEED_FORWARD = {"wi": "inner", "wi_0": "gate", "wi_1": "inner", "wo": "outer"}
LENGTH = 512  # tokens that it was trained with; config.json does not say


@FAMILIES.register("t5")
class T5(Family):
    """Encoder-decoder models with the parts of T5."""

    usual_feed_forward = "relu"  # where config.json does not say
    buffers = {
        "encoder.embed_tokens.weight": "both sides share their token vectors",
        "decoder.embed_tokens.weight": "both sides share their token vectors",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "it is never used",
    }

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        if settings.head not in ("ForConditionalGeneration", "Model"):
            raise settings.wrong_head("ForConditionalGeneration", "EncoderModel")
        if settings.get("sentence_embedding") or settings.body.endswith("Encoder"):
            return self.embedder(settings)
        tied = is_tied(checkpoint, "shared.weight")
        factor = settings.size("d_model") ** -0.5 if self.is_divided(settings) else 1.0
        own = {"decoder_layers": settings.get("num_decoder_layers", settings.size("num_layers"))}
        return Plan(
            task="translate",
            model={**self.model(settings), **own, "tied": tied, "source_input": "shared"},
            table={
                **within("encoder.block.*.", "encoder.blocks.*.", {**SELF, **self._feed_forward(1, 2)}),
                **within("decoder.block.*.", "decoder.blocks.*.", {**SELF, **CROSS, **self._feed_forward(2, 3)}),
                "encoder.final_layer_norm": "encoder.norm",
                "decoder.final_layer_norm": into("decoder.norm", change=scaled(factor)),
                "shared": "target.tokens.table",
                **({} if tied else {"lm_head": "output.linear"}),
            },
            blocks={"encoder": ("encoder.block",), "decoder": ("decoder.block",)},
            data={"max_length": settings.get("n_positions", LENGTH)},
            skipped={"lm_head.weight": "the output is the embedding"} if tied else {},
            roles={"start": settings.get("decoder_start_token_id", settings.get("pad_token_id", 0))},
            vocabulary="target.tokens.table.weight",
        )

    def embedder(self, settings: ForeignConfig) -> Plan:
        """One vector for a text, of the encoder alone."""
        blocks = within("encoder.block.*.", "stack.blocks.*.", {**SELF, **self._feed_forward(1, 2)})
        ends = {"encoder.final_layer_norm": "stack.norm", "shared": "tokens.tokens.table"}
        encoder = Plan(
            task="embed",
            model=self.model(settings),
            table=within("", "encoder.", {**blocks, **ends}),
            blocks={"encoder": ("encoder.block",)},
            data={"max_length": settings.get("n_positions", LENGTH)},
            skipped=dict.fromkeys(("decoder.*", "lm_head.*"), "only the encoder gives a sentence vector"),
            vocabulary="encoder.tokens.tokens.table.weight",
        )
        return sentence_plan(settings, encoder)

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        """The `model` section, as far as the encoder has it too."""
        return {
            "dim": settings.size("d_model"),
            "heads": settings.size("num_heads"),
            "key_dim": settings.size("d_kv"),
            "value_dim": settings.size("d_kv"),
            "layers": settings.size("num_layers"),
            "inner": settings.size("d_ff"),
            "score": "dot",
            "norm": "rms",
            "norm_eps": settings.get("layer_norm_epsilon", 1e-6),
            "placement": "before",
            "feed_forward": self.feed_forward(settings),
            "bias": False,
            "positions": "t5",
            "position_buckets": settings.get("relative_attention_num_buckets", 32),
            "position_longest": settings.get("relative_attention_max_distance", 128),
            "dropout": settings.get("dropout_rate", 0.1),
            "embedding_scale": 1.0,
        }

    def is_divided(self, settings: ForeignConfig) -> bool:
        """Whether the output is divided by √dim."""
        return bool(settings.get("scale_decoder_outputs", settings.get("tie_word_embeddings", True)))

    def feed_forward(self, settings: ForeignConfig) -> str:
        """`relu`, or `gated-gelu`, which is the approximation by tanh."""
        gated, _, name = settings.get("feed_forward_proj", self.usual_feed_forward).rpartition("-")
        name = "gelu_new" if gated and name == "gelu" else name
        if name not in ACTIVATIONS or gated not in ("", "gated") or (gated and ACTIVATIONS[name] not in GATED):
            raise settings.refuse("feed_forward_proj")
        return GATED[ACTIVATIONS[name]] if gated else ACTIVATIONS[name]

    def _feed_forward(self, layer: int, residual: int) -> dict[str, str | Into]:
        return {
            **within(f"layer.{layer}.DenseReluDense.", "feed_forward.", FEED_FORWARD),
            f"layer.{layer}.layer_norm": f"residual{residual}.norm",
        }


def is_tied(checkpoint: Checkpoint, embedding: str) -> bool:
    """Whether the output is the embedding: it is not in the file, or it is the same there."""
    if "lm_head.weight" not in checkpoint.tensors:
        return True
    output, table = checkpoint.tensors["lm_head.weight"], checkpoint.tensors[embedding]
    return output.shape == table.shape and torch.equal(output, table)
