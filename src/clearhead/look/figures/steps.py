"""The steps of one query as strips of numbers, from the score to what the block writes, each with its equation.

S keys, V value size, D width
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Page
from matplotlib.gridspec import GridSpec

from clearhead.look.figures.edges import name_edges, readable
from clearhead.look.figures.heads import KINDS
from clearhead.look.figures.matrix import Scale, draw_matrix, write_numbers
from clearhead.look.figures.sheet import GREY, NARROW, SLIDE, Figure, letter_size, sheet, tallest
from clearhead.look.steps import Step, Steps

EQUATION = 0.75  # of the size of a name
MATRIX = 2.2  # how much higher a matrix is drawn than a vector


def steps(found: Steps, *, width: float = SLIDE) -> Figure:
    """Name and equation at the left, above them in a narrow column; the numbers of each step on its own colours."""
    heights = [MATRIX if step.value.dim() == 2 else 1.0 for step in found.steps]
    beside = width > NARROW
    line = letter_size(width) / 72
    height = min(tallest(width, 2.2), ((2.9 if beside else 4.2) * sum(heights) + 7) * line)
    size = min(0.8 * letter_size(width), 0.4 * 72 * (height - 6 * line) / sum(heights))
    with sheet(width, height) as page:
        page.suptitle(_title(found), x=0.01, ha="left")
        widths = _widths(found, width, size) if beside else (1.0,)
        grid = page.add_gridspec(len(heights), len(widths), height_ratios=heights, width_ratios=widths)
        for number, step in enumerate(found.steps):
            _draw_step(page, grid, number, step, size)
    return Figure(page)


def _widths(found: Steps, width: float, size: float) -> tuple[float, float]:
    """The left column holds the longest equation."""
    longest = max(len(step.equation) for step in found.steps) * 0.55 * EQUATION * size / 72
    return longest, width - longest


def _title(found: Steps) -> str:
    word = readable(found.rows[found.query]) if found.rows else str(found.query)
    return f"{KINDS.get(found.kind, found.kind)}, layer {found.layer}, head {found.head}: the query of “{word}”"


def _draw_step(page: Page, grid: GridSpec, number: int, step: Step, size: float) -> None:
    axes = page.add_subplot(grid[number, -1])
    values = step.value if step.value.dim() == 2 else step.value.unsqueeze(0)  # (S, V), or (1, S)
    shown = values.T if step.value.dim() == 2 else values  # keys stay columns
    scale = Scale.of(shown)
    draw_matrix(axes, shown, scale)
    if number == 0 and step.labels:
        name_edges(axes, (), step.labels)
    if step.value.dim() == 1:
        write_numbers(axes, shown, scale)
    if grid.ncols > 1:
        _write_beside(page.add_subplot(grid[number, 0]), number, step, size)
    else:
        axes.set_title(f"{number + 1} {step.name}   {step.equation}", fontsize=size, loc="left", pad=2)


def _write_beside(axes: Axes, number: int, step: Step, size: float) -> None:
    axes.set_axis_off()
    axes.text(0, 0.55, f"{number + 1} {step.name}", va="bottom", fontsize=size, in_layout=False)
    axes.text(0, 0.45, step.equation, va="top", fontsize=EQUATION * size, color=GREY, in_layout=False)
