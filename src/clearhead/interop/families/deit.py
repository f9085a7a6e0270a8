"""DeiT: ViT with a second token for what a teacher says, and ImageNet's mean and deviation of the pixels.

A distilled model reads the classes from both tokens, with a matrix for each, and takes the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.interop.families.vit import FIRST_AXES, Vit, stored
from clearhead.interop.family import FAMILIES, ForeignConfig
from clearhead.interop.table import Change, Into, into

DISTILLED = "ForImageClassificationWithTeacher"


@FAMILIES.register("deit")
class Deit(Vit):
    """Classifiers of images with the parts of DeiT."""

    prefix = "deit"
    heads = ("ForImageClassification", DISTILLED)
    buffers = {**Vit.buffers, "distillation_classifier.*": "it is one matrix with the classifier"}
    extra_tokens = 1
    usual_mean = (0.485, 0.456, 0.406)
    usual_deviation = (0.229, 0.224, 0.225)
    usual_filter = 3

    def table(self, settings: ForeignConfig) -> dict[str, str | Into]:
        second = {"embeddings.distillation_token": into("encoder.extra_tokens.vectors", change=FIRST_AXES)}
        found = {**super().table(settings), **second}
        if settings.head != DISTILLED:
            return found
        del found["classifier"]
        taught = {end: stored(settings, f"distillation_classifier.{end}", self.prefix) for end in ("weight", "bias")}
        rows = {
            f"cls_classifier.{end}": into(f"output.linear.{end}", change=mean_of_both(tensor))
            for end, tensor in taught.items()
            if tensor is not None
        }
        return {**found, **rows}

    def pool(self, settings: ForeignConfig) -> str:
        return "first_two" if settings.head == DISTILLED else "class"


def mean_of_both(taught: Tensor) -> Change:
    """The output for the class token and that for the teacher's, as one for both vectors side by side."""
    if taught.dim() == 1:
        return Change(lambda x: (x.float() + taught.float()) / 2, lambda x: 2 * x.float() - taught.float())
    return Change(lambda x: torch.cat((x, taught), dim=1).float() / 2, lambda x: 2 * x.float().chunk(2, dim=1)[0])
