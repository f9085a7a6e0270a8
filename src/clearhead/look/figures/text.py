"""A text whose tokens are coloured by a number each: what a unit follows, or what an answer took from each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.figures.edges import cells, readable, size_of
from clearhead.look.figures.matrix import Scale, draw_key
from clearhead.look.figures.sheet import SLIDE, Figure, families, letter_size, sheet

MONO = "DejaVu Sans Mono"
LETTER = 0.602  # how wide a letter of it is, in letter sizes
LINE = 1.45  # how high a line is
BLANKS, BREAKS = (" ", "␣"), ("\n", "⏎")  # as they are, or as a look shows them
KEY = {"location": "bottom", "shrink": 0.45, "aspect": 40, "anchor": (0.0, 0.0)}  # of the colours


@dataclass(frozen=True)
class Placed:
    """A token on its line; letters and lines are counted from 0."""

    word: str
    letter: int
    line: int
    wide: int


def coloured_text(
    tokens: Sequence[str], values: Tensor, *, title: str = "", label: str = "", width: float = SLIDE
) -> Figure:
    """values (T,): red above and blue below 0, or blue that deepens; a token that breaks a line breaks it here too."""
    if values.shape != (len(tokens),) or not tokens:
        raise ShapeError(f"{tuple(values.shape)} numbers cannot colour {len(tokens)} tokens: give one for each")
    scale = Scale.of(values)
    with sheet(width, width / 4) as page:
        axes = page.add_subplot()
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(title, loc="left")
        draw_key(page, ScalarMappable(Normalize(scale.low, scale.high), scale.colours), axes, label, **KEY)
        size = 0.95 * letter_size(width)
        across = int(size_of(axes)[0] / (LETTER * size))
        placed = place_tokens(tokens, across)
        lines = placed[-1].line + 1
        axes.set(xlim=(0, across), ylim=(lines, 0))
        page.set_figheight((lines * LINE + 7) * size / 72)
        spare = size_of(axes)[1] - lines * LINE * size  # what the lines do not need
        page.set_figheight(page.get_figheight() - spare / 72)
        for each, value in zip(placed, values.tolist(), strict=True):
            _draw_token(axes, each, value, scale, size)
    return Figure(page)


def place_tokens(tokens: Sequence[str], across: int) -> list[Placed]:
    """Each token after the one before, with a gap between words that are whole; what does not fit begins a line."""
    gap = 0 if all(len(token) <= 1 for token in tokens) else 1
    placed, letter, line = [], 0, 0
    for token in tokens:
        word = " " if token in BLANKS else readable(token, across)
        wide = min(cells(word), across)
        if letter + wide > across:
            letter, line = 0, line + 1
        placed.append(Placed(word, letter, line, wide))
        letter, line = (0, line + 1) if token.endswith(BREAKS) else (letter + wide + gap, line)
    return placed


def _draw_token(axes: Axes, token: Placed, value: float, scale: Scale, size: float) -> None:
    span = scale.high - scale.low
    colour = scale.colours((value - scale.low) / span)
    axes.add_patch(Rectangle((token.letter, token.line + 0.04), token.wide, 0.92, color=colour, lw=0))
    axes.text(
        token.letter + token.wide / 2,
        token.line + 0.5,
        token.word,
        ha="center",
        va="center",
        family=[MONO, *families()],
        fontsize=size,
        color=scale.ink(value),
    )
