"""The Vision Transformer: patches by a convolution, a class token, LayerNorm before, GELU.

Our images are between -1 and 1. A model that was trained with another mean and deviation of the pixels gets the
difference built into the matrix of its patches, so that it reads the same images.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from clearhead.interop.checkpoint import Checkpoint
from clearhead.interop.family import FAMILIES, Family, ForeignConfig, Plan
from clearhead.interop.table import Change, Into, into, within

OLD = {  # names before version 5 of transformers, which published files have
    "attention.attention.query": "self_attention.query",
    "attention.attention.key": "self_attention.key",
    "attention.attention.value": "self_attention.value",
    "attention.output.dense": "self_attention.output",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
}
NEW = {
    "attention.q_proj": "self_attention.query",
    "attention.k_proj": "self_attention.key",
    "attention.v_proj": "self_attention.value",
    "attention.o_proj": "self_attention.output",
    "mlp.fc1": "feed_forward.inner",
    "mlp.fc2": "feed_forward.outer",
}
NORMS = {"layernorm_before": "residual1.norm", "layernorm_after": "residual2.norm"}
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
FIRST_AXES = Change(lambda x: x.flatten(0, 1), lambda x: x.unsqueeze(0))  # (1, N, D) -> (N, D)
ONE_VECTOR = Change(lambda x: x.flatten(), lambda x: x.view(1, 1, -1))  # (1, 1, D) -> (D,)


@FAMILIES.register("vit")
class Vit(Family):
    """Classifiers of images with the parts of ViT."""

    prefix = "vit"
    buffers = {"embeddings.mask_token": "nothing is masked", "pooler.*": "the class token is read without it"}
    heads: ClassVar[tuple[str, ...]] = ("ForImageClassification",)
    extra_tokens: ClassVar[int] = 0  # between the class token and the patches
    usual_mean: ClassVar[tuple[float, ...]] = (0.5, 0.5, 0.5)
    usual_deviation: ClassVar[tuple[float, ...]] = (0.5, 0.5, 0.5)
    usual_filter: ClassVar[int] = 2

    def plan(self, checkpoint: Checkpoint) -> Plan:
        settings = ForeignConfig(checkpoint)
        if settings.head not in self.heads:
            raise settings.wrong_head(*self.heads)
        size, channels = self.side(settings), settings.get("num_channels", 3)
        return Plan(
            task="vision",
            model=self.model(settings),
            table=self.table(settings),
            blocks={"encoder": ("layers", "encoder.layer")},
            labels=settings.labels,
            sizes={"classes": len(settings.labels), "channels": channels, "height": size, "width": size},
            data={"image_size": size, **self.scaling(settings, size)},
        )

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        """The `model` section."""
        return {
            "dim": settings.size("hidden_size"),
            "heads": settings.size("num_attention_heads"),
            "layers": settings.size("num_hidden_layers"),
            "inner": self.inner(settings),
            "norm": "layer",
            "norm_eps": settings.get("layer_norm_eps", 1e-12),
            "placement": "before",
            "feed_forward": settings.activation("hidden_act", "gelu"),
            "attention_bias": "all" if settings.get("qkv_bias", True) else "output",
            "positions": "learned",
            "dropout": settings.get("hidden_dropout_prob", 0.0),
            "patch": settings.size("patch_size"),
            "pool": self.pool(settings),
            "extra_tokens": self.extra_tokens,
            "several": settings.several,
        }

    def side(self, settings: ForeignConfig) -> int:
        """Height and width of the images that it reads."""
        return settings.size("image_size")

    def inner(self, settings: ForeignConfig) -> int:
        """Hidden width of the feed-forward network."""
        return settings.size("intermediate_size")

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        """Where each tensor goes; a file has the old names or the new ones."""
        mean, deviation = self.pixels(settings)
        shift = [(0.5 - m) / d for m, d in zip(mean, deviation, strict=True)]
        matrix = patch_matrix(settings.size("patch_size"), [1 / (2 * d) for d in deviation])
        weight = stored(settings, "embeddings.patch_embeddings.projection.weight", self.prefix)
        return {
            **within("encoder.layer.*.", "encoder.stack.blocks.*.", {**OLD, **NORMS}),
            **within("layers.*.", "encoder.stack.blocks.*.", {**NEW, **NORMS}),
            "embeddings.patch_embeddings.projection.weight": into("encoder.patches.linear.weight", change=matrix),
            "embeddings.patch_embeddings.projection.bias": into(
                "encoder.patches.linear.bias", change=shifted(weight, shift)
            ),
            "embeddings.cls_token": into("encoder.class_token.vector", change=ONE_VECTOR),
            "embeddings.position_embeddings": into("encoder.positions.table.weight", change=FIRST_AXES),
            "layernorm": "encoder.stack.norm",
            "classifier": "output.linear",
        }

    def pool(self, settings: ForeignConfig) -> str:
        """Which vector the classes are read from."""
        return "class"

    def scaling(self, settings: ForeignConfig, size: int) -> dict[str, Any]:
        """How preprocessor_config.json brings images to this size."""
        given: dict[str, Any] = settings.get("preprocessor_config", {})
        sides = given.get("size")
        if not given.get("do_resize", True) or not sides:
            return {}
        sides = {"height": sides, "width": sides} if isinstance(sides, int) else sides
        square, edge = "shortest_edge" not in sides, sides.get("shortest_edge", sides.get("height"))
        if not isinstance(edge, int) or (square and sides.get("width") != edge) or edge < size:
            raise settings.refuse("preprocessor_config")
        return {
            "image_fit": "stretch" if square else "cut",
            "image_edge": edge if given.get("do_center_crop", False) and edge != size else None,
            "image_filter": FILTERS[given.get("resample", self.usual_filter)],
        }

    def pixels(self, settings: ForeignConfig) -> tuple[list[float], list[float]]:
        """Mean and deviation of the pixels from 0 to 1 that the model was trained with, of each channel."""
        given: dict[str, Any] = settings.get("preprocessor_config", {})
        channels = settings.get("num_channels", 3)
        unit = round(255 * given.get("rescale_factor", 1 / 255), 9) if given.get("do_rescale", True) else 255.0
        if given.get("do_normalize") is False:
            return [0.0] * channels, [1.0 / unit] * channels
        found = []
        for values in (given.get("image_mean", self.usual_mean), given.get("image_std", self.usual_deviation)):
            numbers = [float(x) / unit for x in (values if isinstance(values, (list, tuple)) else [values])]
            if len(numbers) < channels and len(set(numbers)) > 1:
                raise settings.refuse("num_channels")
            found.append((numbers + numbers[:1] * channels)[:channels])
        return found[0], found[1]

    def reference_inputs(self, checkpoint: Checkpoint, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        mean, deviation = (torch.tensor(each).view(-1, 1, 1) for each in self.pixels(ForeignConfig(checkpoint)))
        return {"pixel_values": ((inputs[0] + 1) / 2 - mean) / deviation}


def patch_matrix(patch: int, factors: list[float]) -> Change:
    """A convolution (D, C, P, P) -> the matrix of our patches (D, P × P × C), each channel multiplied by a factor."""
    if all(factor == 1.0 for factor in factors):
        return Change(
            lambda x: x.permute(0, 2, 3, 1).flatten(1),
            lambda x: x.view(len(x), patch, patch, -1).permute(0, 3, 1, 2),
        )
    scale = torch.tensor(factors)  # (C,)
    return Change(
        lambda x: (x.float().permute(0, 2, 3, 1) * scale).flatten(1),
        lambda x: (x.view(len(x), patch, patch, -1) / scale).permute(0, 3, 1, 2),
    )


def shifted(weight: Tensor | None, shift: list[float]) -> Change:
    """A bias to which a constant image is added: what the pixels of our images are short of, in each channel."""
    if weight is None or not any(shift):
        return Change(lambda x: x, lambda x: x)
    added = torch.einsum("dcij,c->d", weight.float(), torch.tensor(shift))
    return Change(lambda x: x.float() + added, lambda x: x.float() - added)


def stored(settings: ForeignConfig, name: str, prefix: str) -> Tensor | None:
    """A tensor of the file, with the prefix of the body or without."""
    tensors = settings.checkpoint.tensors
    return next((tensors[each] for each in (name, f"{prefix}.{name}") if each in tensors), None)
