"""A text whose tokens are coloured by one number each: the activation of a unit, or the relevance of a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.render.figure import SLIDE, Figure, axes_size, font_size, installed_fonts, new_figure
from clearhead.look.render.labels import text_cells, token_label
from clearhead.look.render.matrix import Scale, draw_colorbar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MONO = "DejaVu Sans Mono"
LETTER = 0.602  # width of one of its letters, in font sizes
LINE = 1.45  # height of a line, in font sizes
BLANKS, BREAKS = (" ", "␣"), ("\n", "⏎")  # as they are, or as `display_token` shows them
COLORBAR = {"location": "bottom", "shrink": 0.45, "aspect": 40, "anchor": (0.0, 0.0)}


@dataclass(frozen=True)
class PlacedToken:
    """A token on its line; columns and lines are counted from 0."""

    text: str
    column: int
    line: int
    width: int


def coloured_text(
    tokens: Sequence[str], values: Tensor, *, title: str = "", label: str = "", width: float = SLIDE
) -> Figure:
    """values (T,): blue above and red below 0, or blue that deepens; a line break in a token breaks the line."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    if values.shape != (len(tokens),) or not tokens:
        raise ShapeError(f"{tuple(values.shape)} numbers cannot colour {len(tokens)} tokens: give one for each")
    scale = Scale.of(values)
    with new_figure(width, width / 4) as fig:
        axes = fig.add_subplot()
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(title, loc="left")
        draw_colorbar(fig, ScalarMappable(Normalize(scale.low, scale.high), scale.colormap), axes, label, **COLORBAR)
        size = 0.95 * font_size(width)
        across = int(axes_size(axes)[0] / (LETTER * size))
        placed = place_tokens(tokens, across)
        lines = placed[-1].line + 1
        axes.set(xlim=(0, across), ylim=(lines, 0))
        fig.set_figheight((lines * LINE + 7) * size / 72)
        spare = axes_size(axes)[1] - lines * LINE * size  # height that the lines do not need
        fig.set_figheight(fig.get_figheight() - spare / 72)
        for token, value in zip(placed, values.tolist(), strict=True):
            _draw_token(axes, token, value, scale, size)
    return Figure(fig)


def place_tokens(tokens: Sequence[str], across: int) -> list[PlacedToken]:
    """Set tokens in lines of `across` letters, with a gap between tokens unless all are single letters."""
    gap = 0 if all(len(token) <= 1 for token in tokens) else 1
    placed, column, line = [], 0, 0
    for token in tokens:
        text = " " if token in BLANKS else token_label(token, across)
        width = min(text_cells(text), across)
        if column + width > across:
            column, line = 0, line + 1
        placed.append(PlacedToken(text, column, line, width))
        column, line = (0, line + 1) if token.endswith(BREAKS) else (column + width + gap, line)
    return placed


def _draw_token(axes: Axes, token: PlacedToken, value: float, scale: Scale, size: float) -> None:
    from matplotlib.patches import Rectangle

    span = scale.high - scale.low
    colour = scale.colormap((value - scale.low) / span)
    axes.add_patch(Rectangle((token.column, token.line + 0.04), token.width, 0.92, color=colour, lw=0))
    axes.text(
        token.column + token.width / 2,
        token.line + 0.5,
        token.text,
        ha="center",
        va="center",
        family=[MONO, *installed_fonts()],
        fontsize=size,
        color=scale.text_colour(value),
    )
