"""Gemma: Llama with GELU in the gate, token vectors multiplied by √dim, and gains stored as their distance from 1."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import BLOCK, Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import PLUS_ONE, Into, into


@FAMILIES.register("gemma")
class Gemma(Llama):
    """Decoder-only models with the parts of Gemma."""

    usually_tied = True

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("use_bidirectional_attention", False)
        settings.require("hidden_act", "gelu_pytorch_tanh", "gelu")  # the first files say gelu, and mean it by tanh
        head_dim = settings.get("head_dim", 256)
        return {
            **super().model(settings),
            "key_dim": head_dim,
            "value_dim": head_dim,
            "feed_forward": "geglu_tanh",
            "embedding_scale": settings.size("hidden_size") ** 0.5,
        }

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {
            theirs: into(ours, change=PLUS_ONE) if isinstance(ours, str) and "layernorm" in theirs else ours
            for theirs, ours in BLOCK.items()
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {**super().table(settings), "norm": into("stack.norm", change=PLUS_ONE)}
