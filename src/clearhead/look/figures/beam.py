"""The beam search as a lattice: a column for each step, the likeliest texts at the top, dropped ones grey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from clearhead.errors import ProbeError
from clearhead.look.beams import BeamTree, Node
from clearhead.look.figures.edges import Window, cells, part, readable
from clearhead.look.figures.sheet import COLOURS, GREY, INK, SLIDE, Figure, letter_size, sheet, tallest

Place = tuple[float, float]
BEST, KEPT, DROPPED = COLOURS[4], INK, "#9a9a9a"


def beam(tree: BeamTree, *, steps: Window = None, width: float = SLIDE) -> Figure:
    """Every token that was considered, under the log-probability of its text; the best text is a strong line.

    `steps=(0, 8)` shows the first eight steps.
    """
    written = max(node.step for node in tree.nodes)
    if written == 0:
        raise ProbeError("this beam search wrote nothing, so there is no tree to draw: give it a text to go on from")
    shown = part(steps, written + 1, "steps")
    places = _places([node for node in tree.nodes if shown.start <= node.step < shown.stop])
    best = {node.id for node in tree.path(tree.best)} | {0}
    down = 1 + max(y for _, y in places.values())
    size = letter_size(width)
    height = min(tallest(width, 1.6), (down + 1.2) * 2.9 * size / 72 + 3 * size / 72)
    with sheet(width, height) as page:
        axes = page.add_subplot()
        axes.set(xlim=(shown.start - 0.5, shown.stop - 0.5), ylim=(down - 0.4, -0.7), yticks=[])
        axes.set_xticks(range(shown.start, shown.stop), [str(step) for step in range(shown.start, shown.stop)])
        axes.tick_params(length=0)
        axes.set_xlabel("tokens written")
        axes.spines[:].set_visible(False)
        _draw_edges(axes, tree.nodes, places, best, size)
        room = width * 72 / (shown.stop - shown.start)
        for node in tree.nodes:
            if node.id in places:
                _write_node(axes, node, places[node.id], node.id in best, room, size)
    return Figure(page)


def _places(nodes: Sequence[Node]) -> dict[int, Place]:
    """Steps go to the right; in each step the likeliest text is at the top, and what was dropped below what was not."""
    steps: dict[int, list[Node]] = {}
    for node in nodes:
        steps.setdefault(node.step, []).append(node)
    return {
        node.id: (step, place)
        for step, those in steps.items()
        for place, node in enumerate(sorted(those, key=lambda node: (node.state == "dropped", -node.total)))
    }


def _draw_edges(axes: Axes, nodes: Sequence[Node], places: dict[int, Place], best: set[int], size: float) -> None:
    for node in nodes:
        if node.parent is None or node.id not in places or node.parent not in places:
            continue
        (x0, y0), (x1, y1) = places[node.parent], places[node.id]
        strong = node.id in best
        colour = BEST if strong else DROPPED if node.state == "dropped" else GREY
        style = ":" if node.state == "dropped" else "-"
        axes.plot([x0, x1], [y0, y1], style, color=colour, lw=(3.0 if strong else 1.0) * size / 14, zorder=1 + strong)


def _write_node(axes: Axes, node: Node, place: Place, best: bool, room: float, size: float) -> None:
    """The token in a box, its text's log-probability below; as large as the room between two steps allows."""
    word = readable(node.token, 12) if node.parent is not None else "start"
    letters = min(size, 0.9 * room / (0.62 * max(4, cells(word) + 1)))
    colour = BEST if best else DROPPED if node.state == "dropped" else KEPT
    edge = {
        "facecolor": "white",
        "edgecolor": colour,
        "linewidth": size / 14 * (2.0 if node.state == "finished" else 0.8),
    }
    box = {"boxstyle": "round,pad=0.22", **edge}
    axes.text(*place, word, ha="center", va="center", fontsize=letters, color=colour, bbox=box, zorder=4)
    if node.parent is not None and room > 4.2 * 0.62 * 0.62 * size:
        x, y = place
        number = f"{node.total:.1f}" if room < 5 * 0.62 * size else f"{node.total:.2f}"
        behind = {"facecolor": "white", "edgecolor": "none", "boxstyle": "square,pad=0.05"}
        below: dict[str, Any] = {"fontsize": 0.62 * size, "color": colour, "zorder": 3, "bbox": behind}
        axes.text(x, y + 0.44, number, ha="center", va="center", **below)
