"""Mistral: Llama whose tokens see the last `sliding_window` others, in all blocks or in those that are listed."""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.families.qwen2 import windows
from clearhead.interop.family import FAMILIES, ForeignConfig


@FAMILIES.register("mistral")
class Mistral(Llama):
    """Llama with a window."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        listed = settings.get("layer_types") is not None
        window = {"layer_windows": windows(settings)} if listed else {"window": settings.get("sliding_window")}
        return {**super().model(settings), **window}
