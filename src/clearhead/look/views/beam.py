"""The tree of a beam search: every text that it kept or dropped, with its log-probabilities.

    the root is the prompt
    a node is a text: the text of its parent and one more token
    kept        it became a beam                 dropped     others were likelier
    finished    it ended with the stop token     best        the node of the best hypothesis

At each step a search of beam width K considers its 2 K likeliest continuations, so a step has at most 2 K nodes. Groups
of beams that write the same text share a node. The figure has a column for each step, the likeliest texts at the top.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from clearhead.decode import Hypothesis, Prompts, Settings, beam_search
from clearhead.decode.beam import BeamCandidate, CandidateState
from clearhead.errors import ProbeError
from clearhead.look.render.figure import COLOURS, GREY, INK, SLIDE, Figure, fit_title, font_size, max_height, new_figure
from clearhead.look.render.labels import text_cells, token_label
from clearhead.look.render.matrix import Window, window_slice
from clearhead.look.view import VIEWS, Model, View, ViewOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

FORMAT = "clearhead-beam-1"
SHORT_TOKEN = 10  # letters of a token that must have room in a figure
BEST, KEPT, DROPPED = COLOURS[4], INK, "#9a9a9a"

Point = tuple[float, float]
Ids = tuple[int, ...]
ShowTokens = Callable[[Sequence[int]], list[str]]  # ids -> the token string of each


@dataclass(frozen=True)
class Node:
    """One text that the search considered."""

    id: int
    parent: int | None  # None for the root
    step: int  # tokens generated
    token: str  # the last one; of the root the prompt
    probability: float  # log p(token | the tokens before it)
    total: float  # sum along the path
    score: float  # what ranks it: the total, and of a finished text the total over length^penalty
    state: CandidateState
    token_id: int | None = None  # None for the root


@dataclass(frozen=True)
class BeamTree:
    """A search, and the node at which its best hypothesis ends; node i is `nodes[i]`."""

    nodes: list[Node]
    source: str  # the text that was read
    best: int

    def path(self, node: int) -> list[Node]:
        """The nodes from the first token to a node, without the root."""
        if not 0 <= node < len(self.nodes):
            raise ProbeError(f"there is no node {node}: this tree has {len(self.nodes)}, counted from 0")
        found, parent = [self.nodes[node]], self.nodes[node].parent
        while parent is not None:
            found.append(self.nodes[parent])
            parent = self.nodes[parent].parent
        return found[-2::-1]

    def ids(self, node: int) -> list[int]:
        """The token ids from the first token to a node, without the prompt."""
        return [each.token_id for each in self.path(node) if each.token_id is not None]

    def texts(self, decode: Callable[[list[int]], str], stop: int | None) -> list[str]:
        """The text at each node, without the prompt and the stop token."""
        return [decode([each for each in self.ids(node.id) if each != stop]) for node in self.nodes]

    def to_json(self) -> dict[str, Any]:
        nodes = [asdict(node) for node in self.nodes]
        for node in nodes:
            del node["token_id"]
        return {"format": FORMAT, "source": self.source, "nodes": nodes, "best": self.best}


def beam_tree(
    network: Any,
    sources: Sequence[Tensor],
    prompt: Sequence[int],
    stop: int | None,
    settings: Settings,
    show_tokens: ShowTokens,
    source: str = "",
) -> BeamTree:
    """Search from one prompt and record every text; `sources` is what `network.start` reads, a batch of one."""
    with torch.inference_mode():
        state = network.start(*sources)
    recorder = _Recorder()
    [[best, *_]] = beam_search(network, state, Prompts([prompt], stop), settings, recorder)
    if not recorder.texts:
        raise ProbeError(f"max_tokens={settings.max_tokens} leaves no room for a token, so there is no beam to show")
    root = Node(0, None, 0, " ".join(show_tokens(prompt)), 0.0, 0.0, 0.0, "kept")
    nodes = recorder.nodes(root, stop, show_tokens)
    return BeamTree(list(nodes.values()), source, nodes[_with_stop(best, stop)].id)


def _with_stop(hypothesis: Hypothesis, stop: int | None) -> Ids:
    """The ids of a hypothesis, with the stop token if it ended with one."""
    return (*hypothesis.ids, stop) if hypothesis.finished and stop is not None else tuple(hypothesis.ids)


@dataclass
class _Recorder:
    """An observer that keeps what a search considers and finds."""

    texts: dict[Ids, BeamCandidate] = field(default_factory=dict)
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def considered(self, text: BeamCandidate) -> None:
        """A text that one group drops may be kept by another: then it counts as kept."""
        known = self.texts.get(text.ids)
        if known is None or known.state == "dropped":
            self.texts[text.ids] = text

    def found(self, row: int, hypothesis: Hypothesis) -> None:
        self.hypotheses.append(hypothesis)

    def nodes(self, root: Node, stop: int | None, show_tokens: ShowTokens) -> dict[Ids, Node]:
        """The node of each text, parents before their children."""
        scores = {_with_stop(each, stop): each.score for each in self.hypotheses}
        tokens = show_tokens([ids[-1] for ids in self.texts])
        nodes: dict[Ids, Node] = {(): root}
        for (ids, text), token in zip(self.texts.items(), tokens, strict=True):
            score, parent = scores.get(ids, text.score), nodes[ids[:-1]]
            total = parent.total + text.logprob
            nodes[ids] = Node(
                len(nodes), parent.id, len(ids), token, text.logprob, total, score, text.state, token_id=ids[-1]
            )
        return nodes


# --- the view ---


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
        shown = self._readable(last + 1, width)
        points = _layout([node for node in nodes if shown.start <= node.step < shown.stop])
        best = {node.id for node in tree.path(tree.best)} | {0}
        down = 1 + max(y for _, y in points.values())
        size = font_size(width)
        height = min(max_height(width, 1.6), (down + 1.2) * 2.9 * size / 72 + 3 * size / 72)
        with new_figure(width, height) as fig:
            axes = fig.add_subplot()
            axes.set(xlim=(shown.start - 0.5, shown.stop - 0.5), ylim=(down - 0.4, -0.7), yticks=[])
            axes.set_xticks(range(shown.start, shown.stop), [str(step) for step in range(shown.start, shown.stop)])
            axes.tick_params(length=0)
            axes.set_xlabel("tokens written")
            axes.set_title(fit_title("beam search", width, self.title), loc="left")
            axes.spines[:].set_visible(False)
            _draw_edges(axes, nodes, points, best, size)
            room = width * 72 / (shown.stop - shown.start)
            for node in nodes:
                if node.id in points:
                    _draw_node(axes, node, points[node.id], node.id in best, room, size)
        return Figure(fig)

    def _readable(self, steps: int, width: float) -> slice:
        """The chosen steps; without a choice as many as can be read, with a note about the others."""
        fit = int(width * 72 / (SHORT_TOKEN * 0.62 * 0.6 * font_size(width)))
        if self.steps is not None or steps <= fit:
            return window_slice(self.steps, steps, "steps")
        warnings.warn(f"steps 0:{fit} of {steps} are drawn; columns={fit}: shows the others", stacklevel=3)
        return slice(0, fit)


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
