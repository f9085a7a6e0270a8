"""Gemma 3: norms on both sides of every part, normalised queries and keys, and a window in five of six blocks.

Blocks with a window have a rotary base of their own. Gains are stored as their distance from 1.
"""

from __future__ import annotations

from typing import Any, ClassVar

from clearhead.interop.families.llama import ATTENTION, GATED_FEED_FORWARD, Llama
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.rope import local_base, rotary_settings
from clearhead.interop.table import PLUS_ONE, Into, into, within

NORMS = {
    "self_attn.q_norm": "self_attention.query_norm",
    "self_attn.k_norm": "self_attention.key_norm",
    "input_layernorm": "residual1.norm",
    "post_attention_layernorm": "residual1.outer_norm",
    "pre_feedforward_layernorm": "residual2.norm",
    "post_feedforward_layernorm": "residual2.outer_norm",
}


@FAMILIES.register("gemma3_text")
class Gemma3(Llama):
    """Decoder-only models with the parts of Gemma 3."""

    usually_tied = True
    pattern: ClassVar[int] = 6  # every sixth block sees everything

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("use_bidirectional_attention", False)
        head_dim, window = settings.get("head_dim", 256), settings.get("sliding_window", 4096)
        base = settings.get("rope_theta", 1_000_000.0)
        windows = tuple(window if kind == "sliding_attention" else None for kind in self._kinds(settings))
        return {
            **super().model(settings),
            "key_dim": head_dim,
            "value_dim": head_dim,
            "placement": "around",
            "head_norm": "rms",
            "feed_forward": settings.gated("hidden_activation", "gelu_pytorch_tanh"),
            "embedding_scale": settings.size("hidden_size") ** 0.5,
            "attention_scale": settings.get("query_pre_attn_scalar", 256) ** -0.5,
            "output_cap": settings.get("final_logit_softcapping"),
            **rotary_settings(settings, head_dim, "full_attention", base),
            "layer_windows": windows,
            "local_base": self.local_base(settings, head_dim),
        }

    def local_base(self, settings: ForeignConfig, head_dim: int) -> float | None:
        """The rotary base of blocks with a window, where it is another one."""
        return local_base(settings, head_dim, settings.get("rope_local_base_freq", 10_000.0))

    def block(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {
            **within("self_attn.", "self_attention.", ATTENTION),
            **within("mlp.", "feed_forward.", GATED_FEED_FORWARD),
            **{theirs: into(ours, change=PLUS_ONE) for theirs, ours in NORMS.items()},
        }

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        return {**super().table(settings), "norm": into("stack.norm", change=PLUS_ONE)}

    def _kinds(self, settings: ForeignConfig) -> list[str]:
        """Whether each block has a window."""
        layers, pattern = settings.size("num_hidden_layers"), settings.get("sliding_window_pattern", self.pattern)
        usual = ["full_attention" if (layer + 1) % pattern == 0 else "sliding_attention" for layer in range(layers)]
        return settings.layer_kinds(usual)
