"""mT5: T5 with gated GELU, whose output is not divided, and another vocabulary."""

from __future__ import annotations

from clearhead.interop.families.t5 import T5
from clearhead.interop.family import FAMILIES, ForeignConfig


@FAMILIES.register("mt5")
class Mt5(T5):
    """Encoder-decoder models with the parts of T5."""

    usual_feed_forward = "gated-gelu"

    def is_divided(self, settings: ForeignConfig) -> bool:
        return False
