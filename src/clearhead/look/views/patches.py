"""What a Vision Transformer looks for in a patch: the principal components of its patch embedding.

Each of the D entries of a patch's vector is the product of the patch with a filter. The components of these filters,
the most important first, look like the filters that a convolutional network learns: edges, waves, colours.

    P patch size, C channels, D width, N vectors, K components
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.record import rounded
from clearhead.look.render.figure import SLIDE, Figure
from clearhead.look.render.image import pattern_grid
from clearhead.look.render.terminal import show_bars
from clearhead.look.view import VIEWS, Model, View, ViewOptions
from clearhead.nn import ConvolutionalPatches, PatchEmbedding

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "clearhead-patches-1"
SHOWN = 12  # components in the terminal


@VIEWS.register("patches")
@dataclass(frozen=True, eq=False)
class Patches(View):
    """What a vision model looks for in a patch."""

    title = "principal components of the patch embedding"

    filters: Tensor  # (D, P, P, C)
    components: Tensor  # (K, P, P, C)
    shares: Tensor  # (K,): of the variance of the filters

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> Patches:  # noqa: ARG003 - it needs none
        return patch_components(model.network)

    def show(self, console: Console) -> None:
        shares = self.shares[:SHOWN]
        show_bars(console, shares, [str(number) for number in range(len(shares))], self.title)

    def figure(self, width: float = SLIDE) -> Figure:
        return pattern_grid(self.components, self.shares, title=self.title, width=width)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "components": rounded(self.components), "shares": rounded(self.shares)}


def patch_components(model: nn.Module, count: int = 28) -> Patches:
    """The first components of the patch embedding of a model, or all if there are fewer."""
    embedding = next(
        (part for part in model.modules() if isinstance(part, PatchEmbedding | ConvolutionalPatches)), None
    )
    if embedding is None:
        raise ProbeError("this model reads no images, so it has no patch embedding; look at one for vision or captions")
    filters = embedding.filters()  # (D, P, P, C)
    rows = filters.flatten(1)
    found = principal_components(rows, min(count, *rows.shape))
    return Patches(filters, found.directions.reshape(-1, *filters.shape[1:]), found.shares)


@dataclass(frozen=True, eq=False)
class Components:
    """Orthogonal directions, the one of largest variance first."""

    mean: Tensor  # (D,)
    directions: Tensor  # (K, D), each of length 1
    shares: Tensor  # (K,): of the variance

    def project(self, vectors: Tensor) -> Tensor:
        """(N, D) -> (N, K): the coordinates along the directions."""
        return (vectors - self.mean) @ self.directions.T


def principal_components(vectors: Tensor, count: int) -> Components:
    """vectors (N, D) -> their first components; the largest entry of each direction is positive."""
    most = min(vectors.shape)
    if not 1 <= count <= most:
        raise ShapeError(f"{count} principal components of {tuple(vectors.shape)} numbers; choose from 1 to {most}")
    vectors = vectors.detach().double()
    mean = vectors.mean(0)
    _, singular, directions = torch.linalg.svd(vectors - mean, full_matrices=False)  # (most,), (most, D)
    largest = directions.abs().argmax(-1, keepdim=True)
    directions = directions * directions.gather(-1, largest).sign()
    shares = singular**2 / (singular**2).sum().clamp(min=torch.finfo(singular.dtype).tiny)
    return Components(mean, directions[:count], shares[:count])
