"""Rotary positions as config.json describes them: base, rotated part, and scaling for longer texts.

Every scaling divides the angle of each pair by a factor, and may multiply sines and cosines by a number:

    linear      all pairs by the same factor
    llama3      slow pairs (long wavelengths) by the factor, fast ones by 1, a smooth ramp between
    yarn        the same idea with another ramp, and sines and cosines grow a little
    longrope    a factor for each pair is in the file
"""

from __future__ import annotations

import math
from typing import Any

from clearhead.interop.family import ForeignConfig


def rotary_settings(
    settings: ForeignConfig,
    head_dim: int,
    layer_type: str | None = None,
    usual_base: float | None = None,
    usual_share: float = 1.0,
) -> dict[str, Any]:
    """The settings of the `model` section; `layer_type` chooses among those of a model that has several."""
    rope = settings.get("rope_parameters") or {}
    for name in ("rope_parameters", "rope_scaling"):
        if not isinstance(settings.get(name, {}), dict):
            raise settings.refuse(name)
    if layer_type is not None and isinstance(rope.get(layer_type), dict):
        rope = rope[layer_type]
    rope = {**(settings.get("rope_scaling") or {}), **rope}
    if original := settings.get("original_max_position_embeddings"):  # beside the rest in Phi-3's files, and first
        rope["original_max_position_embeddings"] = original
    usual = usual_base or settings.get("rope_theta", settings.get("rotary_emb_base", 10000.0))
    base = float(rope.get("rope_theta") or usual)
    share = rope.get("partial_rotary_factor") or settings.get("partial_rotary_factor")
    share = share or settings.get("rotary_pct", usual_share)
    rotated = int(head_dim * share)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    factors, gain = _SCALINGS[kind](rope, settings, base, rotated) if kind in _SCALINGS else _unknown(settings)
    return {
        "positions": "rotary",
        "position_base": base,
        "rotary_dim": None if rotated == head_dim else rotated,
        "rotary_factors": None if all(each == 1.0 for each in factors) else tuple(factors),
        "rotary_gain": gain,
    }


def local_base(settings: ForeignConfig, head_dim: int, usual_base: float) -> float:
    """The rotary base of blocks with a window, whose angles ours cannot scale."""
    local = rotary_settings(settings, head_dim, "sliding_attention", usual_base)
    scaled = local["rotary_factors"] is not None or local["rotary_gain"] != 1.0
    if scaled and "sliding_attention" in settings.get("rope_parameters", {}):  # else the scaling is of the other blocks
        raise settings.refuse("rope_parameters")
    return float(local["position_base"])


def reach(settings: ForeignConfig) -> int:
    """The longest text that the model reads as it was trained to: a longrope model changes beyond it."""
    longest: int = settings.size("max_position_embeddings")
    rope = {**(settings.get("rope_scaling") or {}), **(settings.get("rope_parameters") or {})}
    if (rope.get("rope_type") or rope.get("type")) in ("longrope", "su"):
        original = settings.get("original_max_position_embeddings", rope.get("original_max_position_embeddings"))
        return int(original or longest)
    return longest


def _default(_rope: dict[str, Any], _settings: ForeignConfig, _base: float, dim: int) -> tuple[list[float], float]:
    return [1.0] * (dim // 2), 1.0


def _linear(rope: dict[str, Any], _settings: ForeignConfig, _base: float, dim: int) -> tuple[list[float], float]:
    return [float(rope["factor"])] * (dim // 2), 1.0


def _llama3(rope: dict[str, Any], settings: ForeignConfig, base: float, dim: int) -> tuple[list[float], float]:
    factor, low, high = (float(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = float(rope.get("original_max_position_embeddings") or settings.size("max_position_embeddings"))
    factors = []
    for pair in range(dim // 2):
        turns = trained / (2 * math.pi * base ** (2 * pair / dim))  # of this pair over the original length
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1.0 / ((1.0 - kept) / factor + kept))
    return factors, 1.0


def _yarn(rope: dict[str, Any], settings: ForeignConfig, base: float, dim: int) -> tuple[list[float], float]:
    longest = settings.size("max_position_embeddings")
    trained = float(rope.get("original_max_position_embeddings") or longest)
    factor = float(rope.get("factor") or longest / trained)

    def pair_with(turns: float) -> float:
        """The pair that turns so often over the original length."""
        return dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_with(rope.get("beta_fast") or 32.0), pair_with(rope.get("beta_slow") or 1.0)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    factors = []
    for pair in range(dim // 2):
        slow = min(1.0, max(0.0, (pair - low) / max(high - low, 0.001)))
        factors.append(1.0 / (slow / factor + 1.0 - slow))
    return factors, _yarn_gain(rope, factor)


def _yarn_gain(rope: dict[str, Any], factor: float) -> float:
    def grown(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return grown(rope["mscale"]) / grown(rope["mscale_all_dim"])
    return grown(1.0)


def _longrope(rope: dict[str, Any], settings: ForeignConfig, _base: float, dim: int) -> tuple[list[float], float]:
    """The factors for texts up to the original length, which is as far as the model is then read (`reach`)."""
    factors = [float(each) for each in rope["short_factor"]]
    if len(factors) != dim // 2:
        raise settings.refuse("rope_scaling")
    longest, trained = settings.size("max_position_embeddings"), reach(settings)
    factor = rope.get("factor") or longest / trained
    gain = rope.get("attention_factor")
    if gain is None:
        gain = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
    return factors, float(gain)


_SCALINGS = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # its first name
    "dynamic": _default,  # changes nothing up to the trained length, which is as far as the model is read
}


def _unknown(settings: ForeignConfig) -> tuple[list[float], float]:
    raise settings.refuse("rope_scaling" if settings.get("rope_scaling") else "rope_parameters")
