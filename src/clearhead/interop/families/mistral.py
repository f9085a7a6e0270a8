"""Mistral: Llama whose tokens see the last `sliding_window` others."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig


@FAMILIES.register("mistral")
class Mistral(Llama):
    """Llama with a window."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {**super().model(settings), "window": settings.get("sliding_window")}
