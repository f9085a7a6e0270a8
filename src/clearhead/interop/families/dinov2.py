"""DINOv2: ViT whose parts are scaled before they are added, and whose classes are read from class token and patches.

The scales are built into the last matrix of each part. A model that was trained with larger images than its processor
gives gets its positions interpolated once, as transformers does it for every image.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.interop.families.vit import FIRST_AXES, Vit, stored
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Change, Into, into, within

PARTS = {  # a scale: the names of the matrix before it, until version 5 of transformers and since; ours
    "layer_scale1": ("attention.output.dense", "attention.o_proj", "self_attention.output"),
    "layer_scale2": ("mlp.fc2", "mlp.fc2", "feed_forward.outer"),
}
NORMS = {"norm1": "residual1.norm", "norm2": "residual2.norm", "mlp.fc1": "feed_forward.inner"}
POSITIONS = "embeddings.position_embeddings"


@FAMILIES.register("dinov2")
class Dinov2(Vit):
    """Classifiers of images with the parts of DINOv2."""

    prefix = "dinov2"
    buffers = {**Vit.buffers, "encoder.layer.*.layer_scale*.lambda1": "it is built into the matrix before it"}
    usual_mean = (0.485, 0.456, 0.406)
    usual_deviation = (0.229, 0.224, 0.225)
    usual_filter = 3

    def model(self, settings: ForeignConfig) -> dict[str, Any]:
        settings.require("use_swiglu_ffn", False)
        return super().model(settings)

    def inner(self, settings: ForeignConfig) -> int:
        return settings.size("hidden_size") * int(settings.get("mlp_ratio", 4))

    def side(self, settings: ForeignConfig) -> int:
        """What the processor cuts images to, or the size that the model was trained with."""
        given = settings.get("preprocessor_config", {})
        cut = given.get("crop_size") if given.get("do_center_crop", True) else given.get("size")
        cut = {"height": cut, "width": cut} if isinstance(cut, int) else cut or {}
        side = cut.get("height", settings.size("image_size"))
        if side != cut.get("width", side) or side % settings.size("patch_size"):
            raise settings.refuse("preprocessor_config")
        return int(side)

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        inside = {name: place for name, place in super().table(settings).items() if "encoder.layer" not in name}
        names = ("query", "key", "value")
        attention = {f"attention.attention.{name}": f"self_attention.{name}" for name in names}
        attention |= {f"attention.{name[0]}_proj": f"self_attention.{name}" for name in names}
        rows = within("encoder.layer.*.", "encoder.stack.blocks.*.", {**attention, **NORMS})
        for layer in range(settings.size("num_hidden_layers")):
            for scale, (older, newer, ours) in PARTS.items():
                factors = stored(settings, f"encoder.layer.{layer}.{scale}.lambda1", self.prefix)
                target = into(f"encoder.stack.blocks.{layer}.{ours}", change=scaled_rows(factors))
                rows |= {f"encoder.layer.{layer}.{name}": target for name in (older, newer)}
        positions = into("encoder.positions.table.weight", change=self.interpolated(settings))
        return {**inside, **rows, POSITIONS: positions}

    def interpolated(self, settings: ForeignConfig) -> Change:
        """The positions of as many patches as our images have."""
        patches, trained = self.side(settings) // settings.size("patch_size"), stored(settings, POSITIONS, self.prefix)
        if trained is None or trained.size(1) == patches**2 + 1:
            return FIRST_AXES
        return Change(lambda x: resized(x[0].float(), patches), lambda _: trained)

    def pool(self, settings: ForeignConfig) -> str:
        return "class_and_mean"


def scaled_rows(factors: Tensor | None) -> Change:
    """Each row of a matrix, or each number of its bias, multiplied by a factor of its own."""
    if factors is None:
        return Change(lambda x: x, lambda x: x)
    return Change(
        lambda x: x.float() * factors.float().view(-1, *[1] * (x.dim() - 1)),
        lambda x: x.float() / factors.float().view(-1, *[1] * (x.dim() - 1)),
    )


def resized(positions: Tensor, patches: int) -> Tensor:
    """A class token's position and those of a square, (1 + N, D) -> (1 + patches², D), by cubic interpolation."""
    square = round((len(positions) - 1) ** 0.5)
    grid = positions[1:].view(1, square, square, -1).permute(0, 3, 1, 2)  # (1, D, √N, √N)
    found = F.interpolate(grid, size=(patches, patches), mode="bicubic", align_corners=False)
    return torch.cat((positions[:1], found.flatten(2)[0].T))
