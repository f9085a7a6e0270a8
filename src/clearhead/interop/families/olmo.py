"""OLMo: Llama whose norms are LayerNorms without gain and bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig, Plan

EPS = 1e-5  # of every norm; config.json does not say


@FAMILIES.register("olmo")
class Olmo(Llama):
    """Decoder-only models with the parts of OLMo."""

    def plan(self, checkpoint: Checkpoint) -> Plan:
        found = super().plan(checkpoint)
        stack = "stack" if found.task == "lm" else "encoder.stack"
        layers = range(found.model["layers"])
        inside = [f"{stack}.blocks.{layer}.residual{part}.norm" for layer in layers for part in (1, 2)]
        return replace(found, ones=(*inside, f"{stack}.norm"))

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("clip_qkv", None)
        return {**super().model(settings), "norm": "layer", "norm_eps": EPS}
