"""The metadata of one GGUF model, by the keys of its architecture."""

from __future__ import annotations

import math
from typing import Any

import torch

from clearhead.errors import RunError
from clearhead.interop.formats.base.gguf_file import GgufFile


class Model:
    """The metadata of one model, by its architecture's keys."""

    def __init__(self, file: GgufFile, architecture: str):
        self.file, self.architecture = file, architecture

    def get(self, key: str, default: Any = None) -> Any:
        value = self.file.metadata.get(f"{self.architecture}.{key}", default)
        # One value for each layer, where they are all equal, is one value.
        if hasattr(value, "tolist"):
            values = set(value.tolist())
            if len(values) != 1:
                raise RunError(f"{self.file.path}: {key} differs between layers, which Clearhead does not support")
            return values.pop()
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise RunError(f"{self.file.path} is damaged: {self.architecture}.{key} is {value}")
        return value

    def number(self, key: str, default: float) -> float:
        """A float32, as the shortest decimal number that it stands for."""
        return float(f"{float(self.get(key, default)):.7g}")

    @property
    def heads(self) -> int:
        return self.size("attention.head_count")

    @property
    def kv_heads(self) -> int:
        return self.size("attention.head_count_kv", self.heads)

    @property
    def head_dim(self) -> int:
        return self.size("attention.key_length", self.size("embedding_length") // self.heads)

    @property
    def layer_norm_eps(self) -> float:
        return self.number("attention.layer_norm_epsilon", 1e-5)

    @property
    def rotated_share(self) -> float:
        """How much of each head is rotated, as a number whose product with the head size is not rounded down."""
        rotated: int = self.get("rope.dimension_count") or self.head_dim
        share = rotated / self.head_dim
        return share if int(self.head_dim * share) == rotated else math.nextafter(share, 1.0)

    def shape(self, tensor: str) -> tuple[int, ...]:
        info = self.file.tensors.get(tensor)
        if info is None:
            raise RunError(f"{self.file.path} is damaged: it has no tensor {tensor}")
        return info.shape

    def has(self, tensor: str) -> bool:
        return tensor in self.file.tensors

    def tokens(self) -> dict[str, Any]:
        """The vocabulary's size, the ids of special tokens, and whether the output is the embedding."""
        known: dict[str, Any] = {
            "vocab_size": self.shape("token_embd.weight")[0],
            "tie_word_embeddings": not self.has("output.weight"),
        }
        for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
            index = self.file.metadata.get(f"tokenizer.ggml.{theirs}_token_id")
            known[f"{ours}_token_id"] = None if index is None else int(index)  # never an architecture's default
        turns = (self.file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))
        if ends := [int(each) for each in turns if each is not None and int(each) != known["eos_token_id"]]:
            known["eos_token_id"] = [each for each in (known["eos_token_id"], *ends) if each is not None]
        return known

    def rotary(self) -> dict[str, Any]:
        """The base and the scaling of rotary positions; nothing for a model that has none."""
        if not self.get("rope.dimension_count") and self.get("rope.freq_base") is None:
            return {}
        settings: dict[str, Any] = {"rope_theta": self.number("rope.freq_base", 10000.0)}
        if self.rotated_share != 1.0:
            settings["partial_rotary_factor"] = self.rotated_share
        kind = self.get("rope.scaling.type", "linear")
        factor = self.number("rope.scaling.factor", 0.0) or self.number("rope.scale_linear", 1.0)  # its name of 2023
        original = self.get("rope.scaling.original_context_length")
        if self.has("rope_factors_long.weight"):
            settings["original_max_position_embeddings"] = self.size("rope.scaling.original_context_length")
            settings["rope_scaling"] = {
                "rope_type": "longrope",
                "long_factor": self.file.read("rope_factors_long.weight").tolist(),
                "short_factor": self.file.read("rope_factors_short.weight").tolist(),
                "attention_factor": self.get("rope.scaling.attn_factor"),
            }
        elif self.has("rope_freqs.weight"):
            settings["rope_scaling"] = _llama3_scaling(self, settings["rope_theta"])
        elif kind == "linear" and factor != 1.0:
            settings["rope_scaling"] = {"rope_type": "linear", "factor": factor}
        elif kind == "yarn":
            gain = self.get("rope.scaling.attn_factor")
            settings["rope_scaling"] = {
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original,
                "attention_factor": None if gain is None else gain * (0.1 * math.log(factor) + 1.0),
                "beta_fast": self.get("rope.scaling.yarn_beta_fast"),
                "beta_slow": self.get("rope.scaling.yarn_beta_slow"),
            }
        return settings

    def dense(self) -> dict[str, Any]:
        """The sizes that models with RMS norms and gated feed-forward networks share."""
        return {
            "hidden_size": self.size("embedding_length"),
            "intermediate_size": self.size("feed_forward_length"),
            "num_hidden_layers": self.size("block_count"),
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.size("context_length"),
            "rms_norm_eps": self.number("attention.layer_norm_rms_epsilon", 1e-6),
            "hidden_act": "silu",
        }


def _llama3_scaling(model: Model, base: float) -> dict[str, Any]:
    """The settings behind the divisor of each frequency that Llama 3.1 and later store."""
    divisors = model.file.read("rope_freqs.weight").double()
    pairs = torch.arange(0, 2 * len(divisors), 2, dtype=torch.float64)
    wavelength = 2 * math.pi * base ** (pairs / (2 * len(divisors)))
    factor, low, high = float(divisors.max()), 1.0, 4.0
    for original in (8192, model.get("rope.scaling.original_context_length"), model.get("context_length")):
        if original:
            smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)
            if torch.allclose(1 / ((1 - smooth) / factor + smooth), divisors, rtol=1e-4):
                return {
                    "rope_type": "llama3",
                    "factor": round(factor, 6),
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": int(original),
                }
    listed = divisors.tolist()  # of settings that are not known, as they are
    return {"rope_type": "longrope", "short_factor": listed, "long_factor": listed, "attention_factor": 1.0}
