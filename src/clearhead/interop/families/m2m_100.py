"""M2M100 and NLLB: LayerNorm before, ReLU, and the sines of fairseq; the first token of a translation is a language."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.marian import Marian
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into


@FAMILIES.register("m2m_100")
class M2m100(Marian):
    """Encoder-decoder models with the parts of M2M100."""

    placement = "before"

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("pad_token_id", 1)  # positions are counted from it
        own = {"positions": "sinusoidal_fairseq", "output_bias": False}
        return {**super().model(settings), **own}

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {name: place for name, place in super().table(settings).items() if name != "final_logits_bias"}
