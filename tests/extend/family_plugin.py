"""A family of foreign models in one file: Seed-OSS, which is Llama with biases where attention begins.

CLEARHEAD_PLUGINS=family_plugin.py clearhead import Seed-OSS-36B-Base --out runs/seed
"""

from __future__ import annotations

from typing import Any

from clearhead.interop.families.llama import Llama
from clearhead.interop.family import FAMILIES, ForeignConfig


@FAMILIES.register("seed_oss")
class SeedOss(Llama):
    """The names are Llama's; what differs is the `model` section."""

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("attention_out_bias", False)
        biases = "qkv" if settings.get("attention_bias", True) else "neither"
        return {**super().model(settings), "attention_bias": biases}
