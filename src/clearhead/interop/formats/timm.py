"""Vision Transformers as state dicts of timm and of vit-pytorch: .safetensors, .pth or .bin, with a config.json beside.

A state dict does not tell the number of heads. timm's config.json names an architecture, whose heads are known;
for any other file write {"num_heads": 3} into config.json.

    D width, P patch size, C channels, N tokens
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.errors import RunError
from clearhead.files import read_tensors
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format
from clearhead.interop.formats.base.lazy import LazyTensors
from clearhead.interop.formats.base.torch_file import (
    is_torch_file,
    load_torch,
    precision_of,
    settings_beside,
    state_dict_of,
    stored,
)

WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # in timm's folders
HEADS = {"tiny": 3, "small": 6, "base": 12, "large": 16, "huge": 16, "giant": 16, "gigantic": 16}
GREY = (0.5, 0.5, 0.5)  # timm's usual mean and standard deviation of a ViT's pixels

PATCHES = "vit.embeddings.patch_embeddings.projection"
LAYER = "vit.encoder.layer.{}."
TIMM = {
    "cls_token": "vit.embeddings.cls_token",
    "pos_embed": "vit.embeddings.position_embeddings",
    "patch_embed.proj.weight": f"{PATCHES}.weight",
    "patch_embed.proj.bias": f"{PATCHES}.bias",
    "norm.weight": "vit.layernorm.weight",
    "norm.bias": "vit.layernorm.bias",
    "head.weight": "classifier.weight",
    "head.bias": "classifier.bias",
}
TIMM_BLOCK = {
    "norm1": "layernorm_before",
    "attn.proj": "attention.output.dense",
    "norm2": "layernorm_after",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
VIT_PYTORCH = {
    "cls_token": "cls_token",
    "pos_embedding": "pos_embed",
    "to_patch_embedding.1.bias": "patch_embed.proj.bias",
    "mlp_head.0.weight": "norm.weight",
    "mlp_head.0.bias": "norm.bias",
    "mlp_head.1.weight": "head.weight",
    "mlp_head.1.bias": "head.bias",
}
VIT_PYTORCH_BLOCK = {
    "0.norm": "norm1",
    "0.fn.to_qkv": "attn.qkv",
    "0.fn.to_out.0": "attn.proj",
    "1.norm": "norm2",
    "1.fn.net.0": "mlp.fc1",
    "1.fn.net.3": "mlp.fc2",
}


@FORMATS.register("timm")
class Timm(Format):
    """A Vision Transformer that Hugging Face's `transformers` did not write."""

    def can_read(self, path: Path) -> bool:
        try:
            names = _names(_weights(path))
        except RunError:
            return False
        return "blocks.0.attn.qkv.weight" in names or "to_patch_embedding.1.weight" in names

    def read(self, path: Path) -> Checkpoint:
        settings = settings_beside(path)
        tensors = _open(_weights(path))
        patch, eps = _patch_size(tensors, settings, path), 1e-6
        if "to_patch_embedding.1.weight" in tensors:
            tensors, eps = _from_vit_pytorch(tensors, patch, path), 1e-5
        heads = _heads(settings, path)
        found: dict[str, Callable[[], Tensor]] = {}
        for name, tensor in tensors.items():
            for theirs, part in _renamed(name, tensor, path):
                found[theirs] = stored(part)
        config = {**_config(tensors, settings, patch, path), "num_attention_heads": heads, "layer_norm_eps": eps}
        return Checkpoint(path, config, LazyTensors(found), None, {}, precision_of(tensors))


def _weights(path: Path) -> Path:
    """A file, or the weights in a folder."""
    return next((path / name for name in WEIGHTS if (path / name).is_file()), path) if path.is_dir() else path


def _names(path: Path) -> set[str]:
    """The names of a file's tensors."""
    if is_torch_file(path):
        return set(_open(path))
    try:
        with safe_open(path, framework="pt") as file:
            return set(file.keys())
    except (SafetensorError, OSError) as problem:
        raise RunError(f"{path} is not a file of weights ({problem})") from None


def _open(path: Path) -> dict[str, Tensor]:
    """The tensors of a file."""
    if is_torch_file(path):
        return state_dict_of(load_torch(path), "model", "state_dict")
    return read_tensors(path)[0]


def _heads(settings: Mapping[str, Any], path: Path) -> int:
    given = {**settings, **(settings.get("model_args") or {})}
    found = next((given[key] for key in ("num_heads", "num_attention_heads", "heads") if key in given), None)
    if found is None:
        match = re.match(r"(?:vit|deit3?|flexivit)_(\w+?)_", str(settings.get("architecture", "")))
        found = HEADS.get(match[1]) if match else None
    if not isinstance(found, int) or found < 1:
        raise RunError(
            f'{path} does not say how many heads it has; write {{"num_heads": …}} into config.json beside it'
        )
    return found


def _patch_size(tensors: Mapping[str, Tensor], settings: Mapping[str, Any], path: Path) -> int:
    if (patches := tensors.get("patch_embed.proj.weight")) is not None and patches.dim() == 4:
        return int(patches.shape[-1])
    channels = int(settings.get("in_chans", 3))
    size = int(tensors["to_patch_embedding.1.weight"].shape[-1])
    side = int((size / channels) ** 0.5 + 0.5)
    if side * side * channels != size:
        raise RunError(f"{path}: its patches are not squares of {channels} channels")
    return side


def _from_vit_pytorch(tensors: Mapping[str, Tensor], patch: int, path: Path) -> dict[str, Tensor]:
    """vit-pytorch's names and layouts as timm's."""
    if tensors["to_patch_embedding.1.weight"].dim() == 1:
        raise RunError(f"{path} normalises patches before it embeds them, which a ViT of Clearhead does not do")
    renamed = {}
    for name, tensor in tensors.items():
        block = re.fullmatch(r"transformer\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
        if name == "to_patch_embedding.1.weight":  # (D, P × P × C) -> (D, C, P, P)
            renamed["patch_embed.proj.weight"] = tensor.reshape(len(tensor), patch, patch, -1).permute(0, 3, 1, 2)
        elif name in VIT_PYTORCH:
            renamed[VIT_PYTORCH[name]] = tensor
        elif block and block[2] in VIT_PYTORCH_BLOCK:
            renamed[f"blocks.{block[1]}.{VIT_PYTORCH_BLOCK[block[2]]}.{block[3]}"] = tensor
        else:
            renamed[name] = tensor  # which no table has: an error that names it
    return renamed


def _renamed(name: str, tensor: Tensor, path: Path) -> list[tuple[str, Tensor]]:
    """Hugging Face's name; three of them for the queries, keys and values that are one matrix here."""
    if name in TIMM:
        return [(TIMM[name], tensor)]
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if block and block[2] == "attn.qkv":
        parts = zip(("query", "key", "value"), tensor.chunk(3), strict=True)
        return [(f"{LAYER.format(block[1])}attention.attention.{part}.{block[3]}", each) for part, each in parts]
    if block and block[2] in TIMM_BLOCK:
        return [(f"{LAYER.format(block[1])}{TIMM_BLOCK[block[2]]}.{block[3]}", tensor)]
    raise RunError(f"{path} has a tensor {name}, which a ViT of Clearhead lacks")


def _config(tensors: Mapping[str, Tensor], settings: Mapping[str, Any], patch: int, path: Path) -> dict[str, Any]:
    missing = [
        name for name in ("cls_token", "pos_embed", "patch_embed.proj.weight", "norm.weight") if name not in tensors
    ]
    if missing:
        raise RunError(f"{path} lacks {', '.join(missing)}, which a ViT of Clearhead has")
    dim, channels = tensors["patch_embed.proj.weight"].shape[:2]
    side = round((tensors["pos_embed"].shape[1] - 1) ** 0.5)
    if side * side + 1 != tensors["pos_embed"].shape[1]:
        raise RunError(f"{path} has {tensors['pos_embed'].shape[1]} positions, which are no square and a class token")
    if tensors["blocks.0.attn.qkv.weight"].shape[0] != 3 * dim:
        raise RunError(f"{path} has heads that together are not as wide as its tokens, as in a ViT of Clearhead")
    labels = tensors["head.weight"].shape[0] if "head.weight" in tensors else 0
    pretrained = settings.get("pretrained_cfg") or {}
    names = settings.get("label_names") or [f"LABEL_{index}" for index in range(labels)]
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification" if labels else "ViTModel"],
        "hidden_size": dim,
        "num_hidden_layers": 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")),
        "intermediate_size": tensors["blocks.0.mlp.fc1.weight"].shape[0],
        "hidden_act": "gelu",
        "image_size": side * patch,
        "patch_size": patch,
        "num_channels": channels,
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "id2label": {str(index): name for index, name in enumerate(names)},
        "preprocessor_config": _preprocessor(pretrained, side * patch),
    }


def _preprocessor(pretrained: dict[str, Any], size: int) -> dict[str, Any]:
    """How its images were scaled and normalised, as Hugging Face would say it."""
    found = {"image_mean": list(pretrained.get("mean", GREY)), "image_std": list(pretrained.get("std", GREY))}
    if "crop_pct" not in pretrained:
        return found
    edge = math.floor(size / float(pretrained["crop_pct"]))
    method = 2 if pretrained.get("interpolation") == "bilinear" else 3  # Pillow's bilinear or bicubic
    return {**found, "do_center_crop": True, "size": {"shortest_edge": edge}, "resample": method}
