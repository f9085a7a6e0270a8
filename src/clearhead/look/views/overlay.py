"""Where a captioner looks while it writes each word: its cross-attention over the patches, laid over the image.

T words, N patches
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearhead.errors import ProbeError
from clearhead.look.record import LookRecord, rounded
from clearhead.look.render.figure import SLIDE, Figure
from clearhead.look.render.image import image_overlays
from clearhead.look.view import VIEWS, LookView, ViewOptions
from clearhead.look.views.rollout import show_patches

if TYPE_CHECKING:
    from rich.console import Console

KIND = "decoder.cross"
FORMAT = "clearhead-overlay-1"


@VIEWS.register("overlay")
@dataclass(frozen=True, eq=False)
class Overlay(LookView):
    """The patches that each word of a caption attends to."""

    look: LookRecord
    image: Tensor  # (height, width, channels) uint8
    words: list[str]  # T, as they are written
    maps: Tensor  # (T, rows, columns): each sums to 1

    @classmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> Overlay:
        """The last layer and the mean of its heads, unless one is chosen; with a query only that word."""
        if look.image is None or look.grid is None or KIND not in look.attention:
            raise ProbeError(
                f"{look.model} does not write about an image by cross-attention; "
                "look at a captioner (model.architecture=cross) and an image"
            )
        words = look.attention[KIND].rows
        query = options.query_index(words)
        seen = look.pick(KIND, options.layer, options.head, query)
        weights = seen.weights[-1 if options.layer is None else options.layer]  # (H, T, S)
        shares = weights.mean(0) if options.head is None else weights[options.head]
        patches = shares[:, -look.grid[0] * look.grid[1] :]  # without the class token
        maps = (patches / patches.sum(-1, keepdim=True)).view(-1, *look.grid)
        chosen = slice(None) if query is None else slice(query, query + 1)
        return cls(look, look.image, words[chosen], maps[chosen])

    @property
    def title(self) -> str:
        return f"{self.look.model}: {self.look.output}"

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "model": self.look.model, "words": self.words, "maps": rounded(self.maps)}

    def show(self, console: Console) -> None:
        for word, shares in zip(self.words, self.maps, strict=True):
            show_patches(console, shares, word)

    def figure(self, width: float = SLIDE) -> Figure:
        words = enumerate(zip(self.words, self.maps, strict=True), start=1)
        numbered = {f"{number} {word}": shares for number, (word, shares) in words}
        return image_overlays(self.image, numbered, title=self.title, width=width)
