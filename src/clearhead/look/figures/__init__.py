"""Figures of everything that can be looked at: for slides and papers, as SVG, PDF or PNG, text stays text.

    heads(look, layer=2, head=1).save("head.svg")
    lines(look, layer=2, width=COLUMN).save("lines.pdf")

Every function gives a `Figure`; `width` is in inches, and `rows=(10, 40)` shows a part of a long text.
"""

from clearhead.look.figures.beam import beam
from clearhead.look.figures.heads import heads, layers_and_heads, wall
from clearhead.look.figures.history import first_kind, history
from clearhead.look.figures.image import components, over_image
from clearhead.look.figures.importance import importance
from clearhead.look.figures.lens import lens
from clearhead.look.figures.lines import lines
from clearhead.look.figures.matrix import Scale, heatmap, save_heatmap
from clearhead.look.figures.positions import positions
from clearhead.look.figures.scaling import scaling
from clearhead.look.figures.sheet import COLUMN, PAGE, SLIDE, Figure
from clearhead.look.figures.steps import steps
from clearhead.look.figures.text import coloured_text
from clearhead.look.figures.words import words

__all__ = [
    "COLUMN",
    "PAGE",
    "SLIDE",
    "Figure",
    "Scale",
    "beam",
    "coloured_text",
    "components",
    "first_kind",
    "heads",
    "heatmap",
    "history",
    "importance",
    "layers_and_heads",
    "lens",
    "lines",
    "over_image",
    "positions",
    "save_heatmap",
    "scaling",
    "steps",
    "wall",
    "words",
]
