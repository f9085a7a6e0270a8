"""Positions: how a model represents the order of its tokens.

    vectors       PE(pos), one row for each position: the heatmap of the lecture
    products      PE(i) · PE(j), or the effect of the positions on a score inside the heads
    by distance   the mean product of all pairs that are equally far apart: it falls with the distance
    similarity    the cosine between two vectors: which positions are alike in a learned table

Schemes inside the heads have no vectors. For ALiBi and T5 a product is the bias that is added to the score; rotary
positions turn queries and keys, and a product is the score of a vector with itself after both are turned.

    T positions, D width, H heads
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.record import rounded
from clearhead.look.render.figure import COLOURS, SLIDE, Figure, panels
from clearhead.look.render.matrix import Scale, draw_colorbar, draw_matrix
from clearhead.look.render.terminal import show_bars
from clearhead.look.view import VIEWS, Model, View, ViewOptions
from clearhead.nn import PositionScheme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure
    from rich.console import Console

FORMAT = "clearhead-positions-1"
LENGTH = 64  # positions, unless given
SHOWN_DISTANCES = 24  # in the terminal
COLORBAR = {"location": "bottom", "aspect": 22, "shrink": 0.9, "pad": 0.04}


@VIEWS.register("positions")
@dataclass(frozen=True, eq=False)
class Positions(View):
    """How the model represents the order of tokens."""

    page = "positions"

    scheme: str
    products: Tensor  # (1 or H, T, T)
    vectors: Tensor | None = None  # (T, D)
    module: str = ""  # its name in the model

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> Positions:  # noqa: ARG003 - it needs none
        """The first position scheme of the model."""
        name, found = next(iter(positions(model.network).items()))
        return replace(found, module=name)

    @property
    def title(self) -> str:
        return f"{self.scheme} positions ({self.module})" if self.module else f"{self.scheme} positions"

    @property
    def by_distance(self) -> Tensor:
        """(1 or H, T): the mean product of a position with the one 0, 1, 2, … before it."""
        pairs = [self.products.diagonal(-distance, -2, -1) for distance in range(self.products.size(-1))]
        return torch.stack([each.mean(-1) for each in pairs], dim=-1)

    @property
    def similarity(self) -> Tensor | None:
        """(T, T): the cosine between the vectors of two positions."""
        if self.vectors is None:
            return None
        unit = F.normalize(self.vectors, dim=-1)
        return unit @ unit.T

    def over_grid(self, grid: tuple[int, int]) -> Tensor:
        """(rows × columns, rows, columns): the similarity of the position of each patch to that of every other.

        Tokens before the patches, such as a class token, are left out.
        """
        rows, columns = grid
        if self.similarity is None or len(self.similarity) < rows * columns:
            raise ShapeError(f"a grid of {rows} × {columns} patches has no vector for each in {self.scheme} positions")
        patches = self.similarity[-rows * columns :, -rows * columns :]
        return patches.reshape(-1, rows, columns)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "scheme": self.scheme,
            "vectors": None if self.vectors is None else rounded(self.vectors),
            "similarity": None if self.similarity is None else rounded(self.similarity),
            "products": rounded(self.products),
            "by_distance": rounded(self.by_distance),
        }

    def show(self, console: Console) -> None:
        products = self.by_distance.mean(0)[:SHOWN_DISTANCES]
        labels = [str(distance) for distance in range(len(products))]
        show_bars(console, products, labels, f"{self.title}: product by distance")

    def figure(self, width: float = SLIDE) -> Figure:
        """Vectors where there are any, products of pairs as a mean over heads, and products against distance."""
        with panels(2 if self.vectors is None else 3, width, self.title) as (fig, plots):
            if self.vectors is not None:
                _draw_table(fig, plots[0], self.vectors, "vectors")
                plots[0].set(xlabel="dimension", ylabel="position")
            _draw_table(fig, plots[-2], self.products.mean(0), "products of pairs")
            plots[-2].set(xlabel="position", ylabel="position")
            _draw_distances(plots[-1], self.by_distance)
        return Figure(fig)


def _draw_table(fig: MplFigure, axes: Axes, values: Tensor, title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    image = draw_matrix(axes, values, Scale.of(values))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_title(title)
    draw_colorbar(fig, image, axes, "", **COLORBAR)


def _draw_distances(axes: Axes, products: Tensor) -> None:
    """products (H, T): a line for each head."""
    for head, line in enumerate(products.tolist()):
        axes.plot(line, color=COLOURS[head % len(COLOURS)], label=f"head {head}")
    axes.set(xlabel="distance", title="products by distance", xlim=(0, products.size(-1) - 1))
    axes.grid(alpha=0.25)
    if 1 < len(products) <= len(COLOURS):
        axes.legend(frameon=False)


def positions(model: nn.Module, length: int | None = None) -> dict[str, Positions]:
    """Every position scheme of a model, by the name of its module; without a length, all of a learned table."""
    found = {}
    with torch.no_grad():
        for name, part in model.named_modules():
            if isinstance(part, PositionScheme):
                shown = length or part.max_length or LENGTH
                if (products := part.products(shown)) is not None:
                    found[name] = Positions(part.scheme, products, part.vectors(shown))
    if not found:
        raise ProbeError("this model has no positions: it is recurrent, or was trained with model.positions=none")
    return found
