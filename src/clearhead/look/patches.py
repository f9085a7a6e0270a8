"""What a Vision Transformer looks for in a patch: the principal components of its patch embedding.

Each of the D numbers of a patch's vector is a small image laid over the patch and summed up. The components of
these images, the most important first, look like those that a network of convolutions learns: edges, waves, colours.

    P patch size, C channels, D width, K components
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look.components import principal_components
from clearhead.look.storing import rounded
from clearhead.nn import PatchEmbedding

FORMAT = "clearhead-patches-1"


@dataclass(frozen=True, eq=False)
class Patches:
    """The filters of a patch embedding, and the few images that they are made of."""

    filters: Tensor  # (D, P, P, C)
    components: Tensor  # (K, P, P, C)
    shares: Tensor  # (K,): how much of the filters' spread each component has

    def to_json(self) -> dict[str, Any]:
        """As plain lists."""
        return {"format": FORMAT, "components": rounded(self.components), "shares": rounded(self.shares)}


def patch_components(model: nn.Module, count: int = 28) -> Patches:
    """The first components of a model's patch embedding, or all of them where there are fewer."""
    embedding = next((part for part in model.modules() if isinstance(part, PatchEmbedding)), None)
    if embedding is None:
        raise ProbeError("this model reads no images, so it has no patch embedding; look at one for vision or captions")
    filters = embedding.linear.weight.detach()  # (D, P × P × C)
    found = principal_components(filters, min(count, *filters.shape))
    square = (embedding.patch, embedding.patch, embedding.channels)
    return Patches(filters.reshape(-1, *square), found.directions.reshape(-1, *square), found.shares)
