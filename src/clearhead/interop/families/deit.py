"""DeiT: ViT with a second token for what a teacher says, and ImageNet's mean and deviation of the pixels."""

from __future__ import annotations

from clearhead.interop.families.vit import FIRST_AXES, Vit
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Into, into


@FAMILIES.register("deit")
class Deit(Vit):
    """Classifiers of images with the parts of DeiT."""

    prefix = "deit"
    extra_tokens = 1
    usual_mean = (0.485, 0.456, 0.406)
    usual_deviation = (0.229, 0.224, 0.225)
    usual_filter = 3

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        second = {"embeddings.distillation_token": into("encoder.extra_tokens.vectors", change=FIRST_AXES)}
        return {**super().table(settings), **second}
