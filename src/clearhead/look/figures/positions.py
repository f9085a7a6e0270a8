"""Positions: their vectors as the lecture's heatmap, the products of pairs, and the products against distance.

H heads, T positions
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Page
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from clearhead.look.figures.matrix import Scale, draw_key, draw_matrix
from clearhead.look.figures.sheet import COLOURS, SLIDE, Figure, panels
from clearhead.look.positions import Positions

KEY = {"location": "bottom", "aspect": 22, "shrink": 0.9, "pad": 0.04}


def positions(found: Positions, *, title: str = "", width: float = SLIDE) -> Figure:
    """Schemes inside the heads have no vectors: of them only the products are drawn, as a mean over heads."""
    count = 2 if found.vectors is None else 3
    with panels(count, width, title or f"{found.scheme} positions") as (page, places):
        if found.vectors is not None:
            _draw_table(page, places[0], found.vectors, "vectors")
            places[0].set(xlabel="dimension", ylabel="position")
        _draw_table(page, places[-2], found.products.mean(0), "products of pairs")
        places[-2].set(xlabel="position", ylabel="position")
        _draw_distances(places[-1], found.by_distance)
    return Figure(page)


def _draw_table(page: Page, axes: Axes, values: Tensor, title: str) -> None:
    image = draw_matrix(axes, values, Scale.of(values))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_title(title)
    draw_key(page, image, axes, "", **KEY)


def _draw_distances(axes: Axes, products: Tensor) -> None:
    """products (H, T): a line for each head."""
    for head, line in enumerate(products.tolist()):
        axes.plot(line, color=COLOURS[head % len(COLOURS)], label=f"head {head}")
    axes.set(xlabel="distance", title="products by distance", xlim=(0, products.size(-1) - 1))
    axes.grid(alpha=0.25)
    if 1 < len(products) <= len(COLOURS):
        axes.legend(frameon=False)
