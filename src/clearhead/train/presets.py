"""Presets: settings with which a trained model is one that other programs know, so that it can be exported to them.

`clearhead train lm --preset llama` is these settings before your own; what you set yourself counts.
"""

from __future__ import annotations

from clearhead.errors import ConfigError, nearest

BEFORE = ("model.placement=before", "model.norm=layer", "model.bias=true")
ENCODER = (
    *("model.placement=after", "model.norm=layer", "model.bias=true", "model.positions=learned"),
    *("model.feed_forward=gelu", "model.embedding_norm=true", "tokenizer.kind=wordpiece"),
)
TOKENS_ALONE = ("model.ngrams=1", "model.features=0")
BYTES = "tokenizer.kind=bytes"  # every text has tokens, and llama.cpp cuts it alike

PRESETS: dict[str, dict[str, tuple[str, ...]]] = {  # name: its settings for each task
    "llama": {
        "lm": (
            *("model.placement=before", "model.norm=rms", "model.bias=false"),
            *("model.positions=rotary", "model.feed_forward=swiglu", BYTES),
        )
    },
    "gpt2": {"lm": (*BEFORE, "model.positions=learned", "model.feed_forward=gelu_tanh", BYTES)},
    "neox": {"lm": (*BEFORE, "model.positions=rotary", "model.feed_forward=gelu", BYTES)},
    "bert": {
        "classify": (*ENCODER, *TOKENS_ALONE, "model.wide=0", "model.pool=class", "model.pool_transform=tanh"),
        "tag": (*ENCODER, *TOKENS_ALONE),
        "masked_lm": (*ENCODER, "model.output_transform=gelu", "model.output_bias=true"),
    },
    "marian": {
        "translate": (
            *("model.placement=after", "model.norm=layer", "model.bias=true"),
            *("model.positions=sinusoidal", "model.feed_forward=relu"),
        )
    },
    "t5": {
        "translate": (
            *("model.placement=before", "model.norm=rms", "model.bias=false"),
            *("model.positions=t5", "model.feed_forward=relu"),
        )
    },
    "vit": {"vision": (*BEFORE, "model.positions=learned", "model.feed_forward=gelu", "model.pool=class")},
}


def preset_settings(name: str, task: str) -> tuple[str, ...]:
    """The `section.key=value` settings of a preset for a task."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name}; {nearest(name, PRESETS)}")
    if task not in PRESETS[name]:
        raise ConfigError(f"the preset {name} is for {', '.join(PRESETS[name])}, not for {task}")
    return PRESETS[name][task]
