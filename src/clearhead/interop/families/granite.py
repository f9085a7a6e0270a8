"""Granite: Llama whose embedding, scores, residuals and logits are multiplied by numbers of its config.json.

The number of the residuals is built into the last matrix of each part, that of the logits into the last norm.
"""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into, into, scaled


@FAMILIES.register("granite")
class Granite(Llama):
    """Decoder-only models with the parts of Granite."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {
            **super().model(settings),
            "embedding_scale": settings.get("embedding_multiplier", 1.0),
            "attention_scale": settings.get("attention_multiplier", 1.0),
        }

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        change = scaled(settings.get("residual_multiplier", 1.0))
        return {
            **super().block(settings),
            "self_attn.o_proj": into("self_attention.output", change=change),
            "mlp.down_proj": into("feed_forward.outer", change=change),
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        logits = scaled(1.0 / settings.get("logits_scaling", 1.0))
        return {**super().table(settings), "norm": into("stack.norm", change=logits)}
