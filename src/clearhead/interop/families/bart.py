"""BART: Marian with learned positions, which begin at 2, and a norm of the token vectors of each side."""

from __future__ import annotations

from typing import Any, ClassVar

from clearhead.interop.families.marian import Marian
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into, into, without_rows

FIRST = 2  # number of the first position


@FAMILIES.register("bart")
class Bart(Marian):
    """Encoder-decoder models with the parts of BART."""

    buffers: ClassVar[dict[str, str]] = {}

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        own = {"positions": "learned", "embedding_norm": True, "source_input": "tokens"}
        return {**super().model(settings), **own}

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        inputs: dict[str, str | Into] = {}
        for theirs, ours in (("encoder", "source"), ("decoder", "target")):
            positions = into(f"{ours}.positions.table", change=without_rows(FIRST))
            inputs |= {f"{theirs}.embed_positions": positions, f"{theirs}.layernorm_embedding": f"{ours}.norm"}
        return {**super().table(settings), **inputs}
