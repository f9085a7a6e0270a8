"""Pegasus: Marian with LayerNorm before each part, and one more after the last block of each side."""

from __future__ import annotations

from clearhead.interop.families.marian import Marian
from clearhead.interop.family import FAMILIES


@FAMILIES.register("pegasus")
class Pegasus(Marian):
    """Encoder-decoder models with the parts of Pegasus."""

    placement = "before"
