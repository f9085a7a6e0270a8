"""mBART: BART with LayerNorm before each part, and one more after the last block of each side."""

from __future__ import annotations

from clearhead.interop.families.bart import Bart
from clearhead.interop.family import FAMILIES


@FAMILIES.register("mbart")
class Mbart(Bart):
    """Encoder-decoder models with the parts of mBART."""

    placement = "before"
    starts = ("bos_token_id", "eos_token_id")
