"""ALBERT: BERT whose blocks all have the same weights, and whose token vectors are narrower than its blocks."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.bert import UNUSED_POOLER, Bert
from clearhead.interop.family import FAMILIES, ForeignConfig, Plan
from clearhead.interop.table import Into, within

ONE = "encoder.albert_layer_groups.0.albert_layers"
BLOCK = {
    "attention.query": "self_attention.query",
    "attention.key": "self_attention.key",
    "attention.value": "self_attention.value",
    "attention.dense": "self_attention.output",
    "attention.LayerNorm": "residual1.norm",
    "ffn": "feed_forward.inner",
    "ffn_output": "feed_forward.outer",
    "full_layer_layer_norm": "residual2.norm",
}


@FAMILIES.register("albert")
class Albert(Bert):
    """Encoders with the parts of ALBERT."""

    prefix = "albert"
    masked_lm_part = "predictions."
    decoder = "predictions.decoder"
    blocks = ONE

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("num_hidden_groups", 1)
        settings.require("inner_group_num", 1)
        width, dim = settings.size("embedding_size"), settings.size("hidden_size")
        if width == dim:  # a matrix stands there all the same, and ours has none
            raise settings.refuse("embedding_size")
        shared = {"shared_layers": True, "embedding_dim": width}
        return {
            **super().model(settings),
            **shared,
            "feed_forward": settings.activation("hidden_act", "gelu_new"),
            "dropout": settings.get("hidden_dropout_prob", 0.0),
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        projection = {"encoder.embedding_hidden_mapping_in": "tokens.project"}
        return {**within(f"{ONE}.0.", "stack.blocks.0.", BLOCK), **projection}

    def masked_lm(self, settings: ForeignConfig) -> Plan:
        table = {
            "predictions.dense": "output.transform.linear",
            "predictions.LayerNorm": "output.transform.norm",
            "predictions.bias": "output.linear.bias",
        }
        skipped = {
            "predictions.decoder.*": "the output is the embedding",
            "sop_classifier.*": "the order of two sentences is not predicted",
            **UNUSED_POOLER,
        }
        return self._masked(settings, table, skipped, activation=settings.activation("hidden_act", "gelu_new"))

    def classifier(self, settings: ForeignConfig) -> Plan:
        table = {"pooler": "output.transform.linear", "classifier": "output.linear"}
        model = {"pool": "class", "pool_transform": "tanh"}
        return self._plan(settings, "classify", "encoder.", table, model, labels=settings.labels)
