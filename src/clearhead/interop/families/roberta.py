"""RoBERTa: BERT whose positions begin at the number after the padding token's, with other heads."""

from __future__ import annotations

from clearhead.interop.families.bert import EMBEDDINGS, UNUSED_POOLER, Bert
from clearhead.interop.family import FAMILIES, ForeignConfig, Plan
from clearhead.interop.table import Into, into, without_rows


@FAMILIES.register("roberta")
class Roberta(Bert):
    """Encoders with the parts of RoBERTa."""

    prefix = "roberta"
    masked_lm_part = "lm_head."
    decoder = "lm_head.decoder"
    heads = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

    def longest(self, settings: ForeignConfig) -> int:
        return settings.size("max_position_embeddings") - self._first(settings)

    def _first(self, settings: ForeignConfig) -> int:
        """The number of the first position."""
        return int(settings.get("pad_token_id", 1)) + 1

    def embeddings(self, settings: ForeignConfig) -> dict[str, str | Into]:
        cut = into("tokens.positions.table", change=without_rows(self._first(settings)))
        return {**EMBEDDINGS, "embeddings.position_embeddings": cut}

    def masked_lm(self, settings: ForeignConfig) -> Plan:
        table = {
            "lm_head.dense": "output.transform.linear",
            "lm_head.layer_norm": "output.transform.norm",
            "lm_head.bias": "output.linear.bias",
        }
        skipped = {"lm_head.decoder.*": "the output is the embedding", **UNUSED_POOLER}
        return self._masked(settings, table, skipped, activation="gelu")

    def classifier(self, settings: ForeignConfig) -> Plan:
        table = {"classifier.dense": "output.transform.linear", "classifier.out_proj": "output.linear"}
        model = {"pool": "class", "pool_transform": "tanh"}
        return self._plan(settings, "classify", "encoder.", table, model, UNUSED_POOLER, labels=settings.labels)
