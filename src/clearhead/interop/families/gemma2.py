"""Gemma 2: Gemma 3 with one rotary base, queries and keys as they are, limited scores, and a window in every second
block."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.gemma3_text import Gemma3
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.rope import rotary_settings
from clearhead.interop.table import Into


@FAMILIES.register("gemma2")
class Gemma2(Gemma3):
    """Decoder-only models with the parts of Gemma 2."""

    pattern = 2

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        values = settings.values
        return {
            **super().model(settings),
            "head_norm": None,
            "score_cap": values.get("attn_logit_softcapping", 50.0),
            "output_cap": values.get("final_logit_softcapping", 30.0),
            **rotary_settings(settings, settings.get("head_dim", 256)),
        }

    def local_base(self, settings: ForeignConfig, head_dim: int) -> float | None:
        return None

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {name: place for name, place in super().block(settings).items() if "_norm" not in name}
