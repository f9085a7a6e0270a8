"""MPNet: RoBERTa without segments, whose heads also learn a number for each distance, as T5's do."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.roberta import Roberta
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into, within

BLOCK = {
    "attention.attn.q": "self_attention.query",
    "attention.attn.k": "self_attention.key",
    "attention.attn.v": "self_attention.value",
    "attention.attn.o": "self_attention.output",
    "attention.LayerNorm": "residual1.norm",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
    "output.LayerNorm": "residual2.norm",
}


@FAMILIES.register("mpnet")
class Mpnet(Roberta):
    """Encoders with the parts of MPNet."""

    prefix = "mpnet"

    def _first(self, settings: ForeignConfig) -> int:
        return 2  # whatever the padding token is

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        buckets = settings.get("relative_attention_num_buckets", 32)
        own = {"positions": "learned_and_t5", "position_buckets": buckets, "separator": None}
        return {**super().model(settings), **own}

    def segments(self, settings: ForeignConfig) -> int:
        return 0

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        distances = {"encoder.relative_attention_bias": "stack.blocks.0.self_attention.relative.table"}
        return {**within("encoder.layer.*.", "stack.blocks.*.", BLOCK), **distances}

    def embeddings(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {name: place for name, place in super().embeddings(settings).items() if "token_type" not in name}
