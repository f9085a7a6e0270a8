"""OpenNMT's translation models: Marian's names, with token vectors and positions of their own on each side."""

from __future__ import annotations

from typing import Any

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.marian import Marian
from clearhead.interop.family import FAMILIES, ForeignConfig, Plan
from clearhead.interop.table import Into


@FAMILIES.register("opennmt")
class OpenNmt(Marian):
    """Encoder-decoder models as OpenNMT-py, OpenNMT-tf and CTranslate2 have them."""

    in_transformers = False
    buffers = {}

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        return Plan(
            task="translate",
            model=self.model(settings),
            table=self.table(settings),
            blocks={"encoder": ("encoder.layers",), "decoder": ("decoder.layers",)},
            data={"max_length": settings.size("max_position_embeddings")},
            roles={"start": settings("decoder_start_token_id"), "stop": settings("eos_token_id")},
            vocabulary="target.tokens.table.weight",
        )

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        return {
            **super().model(settings),
            "placement": "before" if settings.get("normalize_before", True) else "after",
            "norm_eps": settings.get("layer_norm_eps", 1e-5),
            "positions": settings("positions"),
            "position_base": settings.get("rope_theta", 10000.0),
            "embedding_scale": settings("embedding_scale"),
            "output_bias": True,
            "tied": False,
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        found = {name: place for name, place in super().table(settings).items() if name != "shared"}
        for theirs, ours in (("encoder", "source"), ("decoder", "target")):
            found[f"{theirs}.embed_tokens"] = f"{ours}.tokens.table"
            found[f"{theirs}.embed_positions"] = f"{ours}.positions.table"
            found[f"{theirs}.layer_norm"] = f"{theirs}.norm"
        return {**found, "lm_head": "output.linear"}
