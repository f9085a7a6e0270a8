"""ELECTRA: BERT whose token vectors may be narrower than its blocks, with other heads.

What tells real tokens from replaced ones has no use after training: such a model becomes an embedder.
"""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.bert import Bert
from clearhead.interop.family import FAMILIES, ForeignConfig, Plan
from clearhead.interop.table import Into


@FAMILIES.register("electra")
class Electra(Bert):
    """Encoders with the parts of ELECTRA."""

    prefix = "electra"
    masked_lm_part = "generator_predictions."
    decoder = "generator_lm_head"

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {**super().model(settings), "embedding_dim": settings.size("embedding_size")}

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {**super().table(settings), "embeddings_project": "tokens.project"}

    def embedder(self, settings: ForeignConfig) -> Plan:
        plan = super().embedder(settings)
        plan.skipped["discriminator_predictions.*"] = "replaced tokens are not looked for"
        return plan

    def masked_lm(self, settings: ForeignConfig) -> Plan:
        if settings.head == "ForPreTraining":
            return self.embedder(settings)
        table = {
            "generator_predictions.dense": "output.transform.linear",
            "generator_predictions.LayerNorm": "output.transform.norm",
            "generator_lm_head.bias": "output.linear.bias",
        }
        skipped = {"generator_lm_head.weight": "the output is the embedding"}
        return self._masked(settings, table, skipped, activation="gelu")

    def classifier(self, settings: ForeignConfig) -> Plan:
        table = {"classifier.dense": "output.transform.linear", "classifier.out_proj": "output.linear"}
        model = {"pool": "class", "pool_transform": "gelu"}
        return self._plan(settings, "classify", "encoder.", table, model, labels=settings.labels)
