"""Heads as matrices: one head, all heads of a layer, or all layers and heads.

H heads, T queries, S keys
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from clearhead.look.record import KINDS, LookRecord
from clearhead.look.render.figure import SLIDE, Figure, fit_title
from clearhead.look.render.matrix import Window, heatmap, layer_head_grid, small_multiples, window_slice
from clearhead.look.render.terminal import show_matrix
from clearhead.look.view import VIEWS, LookView, ViewOptions

if TYPE_CHECKING:
    from rich.console import Console


@VIEWS.register("heads")
@dataclass(frozen=True, eq=False)
class Heads(LookView):
    """Where each head looks."""

    page = "heads"

    look: LookRecord
    kind: str
    layer: int | None = None  # None = all in a figure, the last in the terminal
    head: int | None = None  # None = all in a figure, their mean in the terminal
    rows: Window = None
    columns: Window = None

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Self:
        look.pick(options.kind, options.layer, options.head)
        kind = look.kind(options.kind)
        return cls(look, kind, options.layer, options.head, options.rows, options.columns)

    @property
    def title(self) -> str:
        return f"{self.look.model}: {self.look.text}"

    def to_json(self) -> dict[str, Any]:
        return self.look.to_json()

    def show(self, console: Console) -> None:
        seen = self.look.attention[self.kind]
        layer = seen.layers - 1 if self.layer is None else self.layer
        weights = seen.weights[layer].mean(0) if self.head is None else seen.weights[layer][self.head]
        which = "mean of its heads" if self.head is None else f"head {self.head}"
        queries, keys = self._window()
        show_matrix(
            console,
            weights[queries, keys],
            seen.rows[queries],
            seen.columns[keys],
            f"{KINDS.get(self.kind, self.kind)}, layer {layer}, {which}",
            seen.visible[queries, keys],
        )
        console.print(f"→ {self.look.output}", soft_wrap=True)

    def figure(self, width: float = SLIDE) -> Figure:
        """One head of a layer, large; without a head all of the layer, without a layer all there are."""
        seen, layer, head = self.look.attention[self.kind], self.layer, self.head
        queries, keys = self._window()
        shown = [weights[:, queries, keys] for weights in seen.weights]
        visible, name = seen.visible[queries, keys], KINDS.get(self.kind, self.kind)
        layout: dict[str, Any] = {
            "rows": seen.rows[queries],
            "columns": seen.columns[keys],
            "visible": visible,
            "width": width,
        }

        def title(which: str) -> str:
            return fit_title(f"{name}{which}", width, self.look.caption)

        if layer is None and head is None:
            return layer_head_grid(shown, title=title(""), **layout)
        if layer is None:
            names = [f"layer {number}" for number in range(seen.layers)]
            return small_multiples([each[head] for each in shown], names, title=title(f", head {head}"), **layout)
        if head is None:
            names = [f"head {number}" for number in range(seen.heads)]
            return small_multiples(list(shown[layer]), names, title=title(f", layer {layer}"), **layout)
        return heatmap(shown[layer][head], title=title(f", layer {layer}, head {head}"), **layout)

    def _window(self) -> tuple[slice, slice]:
        seen = self.look.attention[self.kind]
        return (
            window_slice(self.rows, len(seen.rows), "rows"),
            window_slice(self.columns, len(seen.columns), "columns"),
        )
