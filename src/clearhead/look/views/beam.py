"""The beam search as a tree: a column for each step, the likeliest texts at the top, dropped ones grey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from clearhead.errors import ProbeError
from clearhead.look.beams import BeamTree, Node
from clearhead.look.render.figure import (
    COLOURS,
    GREY,
    INK,
    SLIDE,
    Figure,
    font_size,
    max_height,
    sheet,
    text_cells,
    token_label,
)
from clearhead.look.render.matrix import Window, window_slice
from clearhead.look.view import VIEWS, Model, View, ViewOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

Point = tuple[float, float]
BEST, KEPT, DROPPED = COLOURS[4], INK, "#9a9a9a"


@VIEWS.register("beam")
@dataclass(frozen=True)
class Beam(View):
    """Every text that a beam search kept or dropped."""

    page = "beam"

    tree: BeamTree
    model: str = ""
    steps: Window = None  # (0, 8) shows the first eight steps

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> Self:
        return cls(model.beam_tree(options.input_for(model), options.beam_width), model.name, options.columns)

    @property
    def title(self) -> str:
        return f"{self.model}: {self.tree.source}"

    def to_json(self) -> dict[str, Any]:
        return self.tree.to_json()

    def show(self, console: Console) -> None:
        tree = self.tree
        finished = sorted((node for node in tree.nodes if node.state == "finished"), key=lambda node: -node.score)
        console.print(f"{len(tree.nodes) - 1} texts were considered; those that ended, best first:", soft_wrap=True)
        for node in finished or [tree.nodes[tree.best]]:
            text = " ".join(each.token for each in tree.path(node.id))
            console.print(f"{node.score:8.3f}  {text}", soft_wrap=True, style="bold" if node.id == tree.best else None)

    def figure(self, width: float = SLIDE) -> Figure:
        """Every token that was considered, with the log-probability of its text; the best text is a bold line."""
        nodes, tree = self.tree.nodes, self.tree
        last = max(node.step for node in nodes)
        if last == 0:
            raise ProbeError("this beam search generated nothing, so there is no tree to draw: give it a prompt")
        shown = window_slice(self.steps, last + 1, "steps")
        points = _layout([node for node in nodes if shown.start <= node.step < shown.stop])
        best = {node.id for node in tree.path(tree.best)} | {0}
        down = 1 + max(y for _, y in points.values())
        size = font_size(width)
        height = min(max_height(width, 1.6), (down + 1.2) * 2.9 * size / 72 + 3 * size / 72)
        with sheet(width, height) as fig:
            axes = fig.add_subplot()
            axes.set(xlim=(shown.start - 0.5, shown.stop - 0.5), ylim=(down - 0.4, -0.7), yticks=[])
            axes.set_xticks(range(shown.start, shown.stop), [str(step) for step in range(shown.start, shown.stop)])
            axes.tick_params(length=0)
            axes.set_xlabel("tokens written")
            axes.spines[:].set_visible(False)
            _draw_edges(axes, nodes, points, best, size)
            room = width * 72 / (shown.stop - shown.start)
            for node in nodes:
                if node.id in points:
                    _draw_node(axes, node, points[node.id], node.id in best, room, size)
        return Figure(fig)


def _layout(nodes: Sequence[Node]) -> dict[int, Point]:
    """Steps go to the right; in each step the likeliest text is at the top, dropped ones below all others."""
    steps: dict[int, list[Node]] = {}
    for node in nodes:
        steps.setdefault(node.step, []).append(node)
    return {
        node.id: (step, row)
        for step, those in steps.items()
        for row, node in enumerate(sorted(those, key=lambda node: (node.state == "dropped", -node.total)))
    }


def _draw_edges(axes: Axes, nodes: Sequence[Node], points: dict[int, Point], best: set[int], size: float) -> None:
    for node in nodes:
        if node.parent is None or node.id not in points or node.parent not in points:
            continue
        (x0, y0), (x1, y1) = points[node.parent], points[node.id]
        bold = node.id in best
        colour = BEST if bold else DROPPED if node.state == "dropped" else GREY
        style = ":" if node.state == "dropped" else "-"
        axes.plot([x0, x1], [y0, y1], style, color=colour, lw=(3.0 if bold else 1.0) * size / 14, zorder=1 + bold)


def _draw_node(axes: Axes, node: Node, point: Point, best: bool, room: float, size: float) -> None:
    """The token in a box with the log-probability of its text below, as large as the room between two steps allows."""
    token = token_label(node.token, 12) if node.parent is not None else "start"
    fitting = min(size, 0.9 * room / (0.62 * max(4, text_cells(token) + 1)))
    colour = BEST if best else DROPPED if node.state == "dropped" else KEPT
    edge = {
        "facecolor": "white",
        "edgecolor": colour,
        "linewidth": size / 14 * (2.0 if node.state == "finished" else 0.8),
    }
    box = {"boxstyle": "round,pad=0.22", **edge}
    axes.text(*point, token, ha="center", va="center", fontsize=fitting, color=colour, bbox=box, zorder=4)
    if node.parent is not None and room > 4.2 * 0.62 * 0.62 * size:
        x, y = point
        number = f"{node.total:.1f}" if room < 5 * 0.62 * size else f"{node.total:.2f}"
        behind = {"facecolor": "white", "edgecolor": "none", "boxstyle": "square,pad=0.05"}
        below: dict[str, Any] = {"fontsize": 0.62 * size, "color": colour, "zorder": 3, "bbox": behind}
        axes.text(x, y + 0.44, number, ha="center", va="center", **below)
