"""The whole model as one picture, from the text to the single number: what `look/graph.py` describes, with its values.

The page zooms from the model to a block, an attention layer, a head, one query's row and the dot product of two
vectors; every number can be followed back to the numbers that it was computed from.

    xray = model.view("xray", "we are eating bread")
    xray.save("xray.html")                       one file that opens from disk
    xray.outline()                               the graph alone; values come later, group by group
    xray.values("decoder.1")                     the tensors of one block
    xray.weight_row("decoder.1.self.query", 3)   the weights that one number of a linear map was computed with

Tensors travel as little-endian float32 in base64: the page has the numbers that the model computed, not rounded ones.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from clearhead.errors import ProbeError, nearest
from clearhead.look.graph import Graph, Group, Part, code_of, model_graph
from clearhead.look.record import LookRecord
from clearhead.look.render.figure import GREY, SLIDE, Figure, font_size, max_height, new_figure
from clearhead.look.render.labels import label_edges
from clearhead.look.render.matrix import Scale, draw_matrix
from clearhead.look.view import VIEWS, LookView, Model, ViewOptions

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "clearhead-xray-1"
WEIGHT_BYTES = 1_200_000  # of all matrices, up to which a page carries them; beyond, the Studio sends rows on demand


@VIEWS.register("xray")
@dataclass(frozen=True)
class XRay(LookView):
    """The whole model as one picture, from the text to the single number."""

    page = "xray"

    look: LookRecord
    graph: Graph
    read: int  # tokens of the decoder that are read at once, before it writes one at a time
    beams: Callable[[], dict[str, Any]] | None = None  # searches, for the page

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> XRay:
        item = options.input_for(model)
        look = model.look(item, options.target, generate=options.generate)
        prepared = model.prepare(item)
        found = cls.of(look, options, len(prepared.prompt) if options.generate else None)
        if not prepared.sources or not prepared.prompt or options.target or options.beam_width < 2:
            return found
        return replace(found, beams=lambda: _beam_json(model, item, options.beam_width))

    @classmethod
    def of(
        cls,
        look: LookRecord,
        options: ViewOptions | None = None,  # noqa: ARG003
        read: int | None = None,
        changed: bool = False,
        temperature: float = 1.0,
    ) -> XRay:
        """`read` is the number of tokens that a decoder reads at once; a translator reads the start token alone.

        `changed` says that the network has interventions open, those that the look was computed with.
        """
        written = "decoder" in look.tokens and "encoder" in look.tokens
        graph = model_graph(look, changed, temperature)
        return cls(look, graph, read or (1 if written else len(look.tokens.get("decoder", ()))))

    @property
    def title(self) -> str:
        return f"{self.look.model}: {self.look.text}"

    @property
    def numbers(self) -> int:
        """How many numbers the tensors of the graph have."""
        return sum(part.value.numel() for part in self.graph.parts.values())

    # --- JSON ---

    def to_json(self) -> dict[str, Any]:
        """The outline and every tensor; the matrices too where the model is small."""
        found = {**self.outline(), "values": self.values("")}
        matrices = {id: part.weight for id, part in self.graph.parts.items() if part.weight}
        if sum(4 * each.numel() for weight in matrices.values() for each in weight) <= WEIGHT_BYTES:
            found["weights"] = {id: [encoded(each) for each in weight] for id, weight in matrices.items()}
        if self.beams is not None:
            found["beam"] = self.beams()
        return found

    def outline(self) -> dict[str, Any]:
        """The graph without its tensors."""
        look = self.look
        image = None if look.image is None else look.image.tolist()
        return {
            "format": FORMAT,
            "model": look.model,
            "task": look.task,
            "text": look.text,
            "output": look.output,
            "read": self.read,
            "image": image,
            "grid": None if look.grid is None else list(look.grid),
            "axes": self.graph.axes,
            "groups": {id: _group_json(group) for id, group in self.graph.groups.items()},
            "parts": {id: _part_json(part) for id, part in self.graph.parts.items()},
        }

    def values(self, item: str) -> dict[str, dict[str, Any]]:
        """The tensors of a part, or of all parts inside a group; those in their details too."""
        known = {**self.graph.groups, **self.graph.parts}
        if item not in known:
            raise ProbeError(f"{self.look.model} has no part {item}; {nearest(item, known)}")
        return {
            part.id: {
                "value": encoded(part.value),
                "details": {name: encoded(each) for name, each in part.details.items() if isinstance(each, Tensor)},
            }
            for part in ([self.graph.parts[item]] if item in self.graph.parts else self.graph.of_group(item))
        }

    def weight_row(self, part: str, row: int) -> list[str]:
        """The rows of the matrices that number `row` of a linear map was computed with, one for each input."""
        known = {id: each for id, each in self.graph.parts.items() if each.weight}
        if part not in known:
            raise ProbeError(f"{part} of {self.look.model} is not computed by a matrix; {nearest(part, known)}")
        if not 0 <= row < known[part].weight[0].size(0):
            raise ProbeError(f"the matrix of {part} has no row {row}: it has {known[part].weight[0].size(0)}")
        return [encoded(weight[row]) for weight in known[part].weight]

    # --- figure and terminal ---

    def figure(self, width: float = SLIDE) -> Figure:
        """What each block adds to the vectors of the tokens, stack by stack, and the answer."""
        shown = [part for id, part in self.graph.parts.items() if _is_stream(id)]
        stacks = list(dict.fromkeys(part.rows.split(".")[0] for part in shown))
        answer = self.graph.parts.get("probabilities")
        columns = max(sum(part.rows.split(".")[0] == stack for part in shown) for stack in stacks) + (
            answer is not None
        )
        height = min(max_height(width, 1.1), (0.32 * width + 0.6) * len(stacks))
        with new_figure(width, height) as fig:
            fig.suptitle(f"{self.title} → {self.look.output}"[:110], x=0.01, ha="left")
            grid = fig.add_gridspec(len(stacks), columns)
            for row, stack in enumerate(stacks):
                own = [part for part in shown if part.rows.split(".")[0] == stack]
                scale = Scale.of(*(part.value for part in own))
                for column, part in enumerate(own):
                    axes = fig.add_subplot(grid[row, column])
                    draw_matrix(axes, part.value, scale)
                    axes.set_aspect("auto")
                    name = "embedded" if part.id.endswith("embedded") else part.id.replace(".hidden", "")
                    axes.set_title(name, fontsize=0.8 * font_size(width), color=GREY, loc="left", pad=3)
                    if column == 0:
                        label_edges(axes, self.graph.axes[part.rows], ())
            if answer is not None:
                axes = fig.add_subplot(grid[len(stacks) - 1, columns - 1])
                draw_matrix(axes, answer.value, Scale(0.0, 1.0))
                axes.set_aspect("auto")
                axes.set_title("answer", fontsize=0.8 * font_size(width), color=GREY, loc="left", pad=3)
                best = [names[0] for names in answer.details["names"]]
                axes.yaxis.tick_right()
                axes.set_yticks(range(len(best)), best, fontsize=0.7 * font_size(width))
        return Figure(fig)

    def show(self, console: Console) -> None:
        for line in (f"{self.title} → {self.look.output}", "", *self._lines("", 0)):
            console.print(line, soft_wrap=True, markup=False, highlight=False)

    def _lines(self, group: str, depth: int) -> list[str]:
        """The parts of a group with their shapes and equations; a block like the one before it is only named."""
        found: list[str] = []
        before: list[str] = []
        for item in self.graph.groups[group].items:
            if part := self.graph.parts.get(item):
                shape = " × ".join(map(str, part.value.shape))
                found.append(f"{'  ' * depth}{part.name:<{34 - 2 * depth}} {shape:<14} {part.equation}".rstrip())
                continue
            inside = self._lines(item, depth + 1)
            found.append(
                "  " * depth + self.graph.groups[item].name + ("  (the same parts)" if inside == before else "")
            )
            found += [] if inside == before else inside
            before = inside
        return found


def _beam_json(model: Model, item: Any, beam_width: int) -> dict[str, Any]:
    """The tree of a beam search, and the text of each node."""
    tree = model.beam_tree(item, beam_width)
    return {**tree.to_json(), "texts": tree.texts(model.tokenizer.decode, model.prepare(item).stop)}


def _is_stream(id: str) -> bool:
    """Whether a part is the stream of vectors at the end of a block."""
    return id.endswith((".embedded", ".hidden")) and not id.endswith((".forward.hidden", ".backward.hidden"))


def encoded(tensor: Tensor) -> str:
    """A tensor as little-endian float32 in base64."""
    numbers = np.ascontiguousarray(tensor.detach().float().cpu().numpy(), dtype="<f4")
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "name": group.name,
        "about": group.about,
        "equation": group.equation,
        "code": list(code_of(group.code)),
        "items": group.items,
    }


def _part_json(part: Part) -> dict[str, Any]:
    return {
        "op": part.op,
        "name": part.name,
        "symbol": part.symbol,
        "about": part.about,
        "equation": part.equation,
        "code": list(code_of(part.code)),
        "inputs": list(part.inputs),
        "shape": list(part.value.shape),
        "rows": part.rows,
        "columns": part.columns,
        "details": {name: each for name, each in part.details.items() if not isinstance(each, Tensor)},
        "matrices": [list(weight.shape) for weight in part.weight],
    }
