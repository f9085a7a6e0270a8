"""DistilBERT: BERT without segments, and with other names."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.bert import Bert
from clearhead.interop.family import FAMILIES, ForeignConfig, Plan
from clearhead.interop.table import Into, within

BLOCK = {
    "attention.q_lin": "self_attention.query",
    "attention.k_lin": "self_attention.key",
    "attention.v_lin": "self_attention.value",
    "attention.out_lin": "self_attention.output",
    "sa_layer_norm": "residual1.norm",
    "ffn.lin1": "feed_forward.inner",
    "ffn.lin2": "feed_forward.outer",
    "output_layer_norm": "residual2.norm",
}


@FAMILIES.register("distilbert")
class DistilBert(Bert):
    """Encoders with the parts of DistilBERT."""

    prefix = "distilbert"
    masked_lm_part = "vocab_transform."
    decoder = "vocab_projector"
    blocks = "transformer.layer"
    heads = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {
            "dim": settings.size("dim"),
            "heads": settings.size("n_heads"),
            "layers": settings.size("n_layers"),
            "inner": settings.size("hidden_dim"),
            "norm": "layer",
            "norm_eps": 1e-12,
            "placement": "after",
            "feed_forward": settings.activation("activation", "gelu"),
            "positions": "learned",
            "max_length": self.longest(settings),
            "dropout": settings.get("dropout", 0.1),
            "embedding_scale": 1.0,
            "embedding_norm": True,
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return within("transformer.layer.*.", "stack.blocks.*.", BLOCK)

    def embeddings(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {name: place for name, place in super().embeddings(settings).items() if "token_type" not in name}

    def masked_lm(self, settings: ForeignConfig) -> Plan:
        table = {
            "vocab_transform": "output.transform.linear",
            "vocab_layer_norm": "output.transform.norm",
            "vocab_projector.bias": "output.linear.bias",
        }
        skipped = {"vocab_projector.weight": "the output is the embedding"}
        return self._masked(settings, table, skipped, activation=settings.activation("activation", "gelu"))

    def classifier(self, settings: ForeignConfig) -> Plan:
        table = {"pre_classifier": "output.transform.linear", "classifier": "output.linear"}
        model = {"pool": "class", "pool_transform": "relu"}
        return self._plan(settings, "classify", "encoder.", table, model, labels=settings.labels)
