"""Gemma 3 that also reads images: its language model. The part that sees is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.families.gemma3_text import Gemma3
from clearhead.interop.family import FAMILIES, Plan

BODIES = ("model.language_model", "language_model.model")  # of files by today's transformers, and by older ones
USUAL: dict[str, Any] = {  # of the text part, whose config.json leaves out what is so
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
IMAGES = {
    "*vision_tower.*": "only the language model is imported",
    "*multi_modal_projector.*": "only the language model is imported",
    "*lm_head.weight": "the output is the embedding",
}


@FAMILIES.register("gemma3")
class MultimodalGemma3(Gemma3):
    """The language model inside a model of texts and images."""

    def plan(self, checkpoint: Checkpoint) -> Plan:
        self.prefix = next((body for body in BODIES if f"{body}.norm.weight" in checkpoint.tensors), BODIES[0])
        config = {**USUAL, **checkpoint.config.get("text_config", {}), "architectures": ["Gemma3ForCausalLM"]}
        plan = super().plan(replace(checkpoint, config=config))
        return replace(plan, blocks={"decoder": ("layers", f"{BODIES[0]}.layers")}, skipped={**plan.skipped, **IMAGES})
