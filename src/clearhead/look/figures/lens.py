"""The logit lens: after each block and at each token the likeliest answer, the deeper its colour the surer.

L layers, T tokens, V vocabulary or labels
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.look.figures.edges import Window, cells, letters_of, name_edges, part, readable, size_of
from clearhead.look.figures.matrix import Scale, draw_key, draw_matrix
from clearhead.look.figures.sheet import SLIDE, Figure, letter_size, sheet, tallest
from clearhead.look.lens import Lens


def lens(
    found: Lens, tokens: Sequence[str], choices: Sequence[str], *, columns: Window = None, width: float = SLIDE
) -> Figure:
    """`tokens` are the T that were read, `choices` names the V answers; the last layer is at the top."""
    sure, best = found.probabilities.max(-1)  # (1 + L, T)
    if len(tokens) != sure.size(1):
        raise ShapeError(
            f"{len(tokens)} tokens do not fit the {sure.size(1)} that the lens has read: name each of them"
        )
    shown = part(columns, len(tokens), "columns")
    sure, best = sure[:, shown].flip(0), best[:, shown].flip(0)
    line = letter_size(width) / 72
    with sheet(width, min(tallest(width, 1.3), (2.0 * len(sure) + 7) * line)) as page:
        axes = page.add_subplot()
        scale = Scale(0.0, 1.0)
        draw_key(page, draw_matrix(axes, sure, scale), axes, "probability")
        axes.set_title("likeliest answer after each layer", loc="left")
        layers = [f"layer {number}" for number in range(len(sure) - 2, -1, -1)]
        name_edges(axes, [*layers, "embedded"], tokens[shown], top=False)
        words = [[readable(choices[number], 14) for number in row] for row in best.tolist()]
        _write_words(axes, words, sure, scale)
    return Figure(page)


def _write_words(axes: Axes, words: Sequence[Sequence[str]], sure: Tensor, scale: Scale) -> None:
    """Each word in its cell, cut to the room that there is; none where not even three letters fit."""
    width, height = size_of(axes)
    longest = max(cells(word) for row in words for word in row)
    wanted = width / len(words[0]) / (0.6 * min(4, longest))  # the size at which four letters fit
    size = min(0.85 * letters_of(axes), max(0.6 * letters_of(axes), wanted), height / len(words) / 1.2)
    room = int(width / len(words[0]) / (0.6 * size))
    if room < min(3, longest):
        return
    for i, row in enumerate(words):
        for j, word in enumerate(row):
            colour = scale.ink(float(sure[i, j]))
            axes.text(j, i, readable(word, room), ha="center", va="center", fontsize=size, color=colour)
