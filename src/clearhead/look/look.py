"""What `Model.look` returns: `look = model.look("we are eating bread")`.

    look.tokens["encoder"]                    the tokens that were read
    look.weights["decoder.cross"][2]          (H, T, S): layer 2, from each token written to each token read
    look.hidden["encoder"]                    the embedded input, then the output of each block, (T, D)
    look.heads(layer=2, head=1).save("head.svg")
    look.view("relevance", query="pan").save("relevance.svg")
    look.save("look.safetensors"); Look.load("look.safetensors")

The data and its files are in `record.py`; here is what can be made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import ConfigError, ProbeError, nearest
from clearhead.files import write_errors, write_text
from clearhead.look.record import LookRecord
from clearhead.look.render import html
from clearhead.look.render.figure import SLIDE, Figure
from clearhead.look.view import VIEWS, LookView, ViewOptions
from clearhead.look.views.heads import Heads
from clearhead.look.views.rollout import HeadFusion, rollout
from clearhead.look.views.steps import Steps, steps

PAGES = ("heads", "patches", "steps")  # of a look


@dataclass(frozen=True, eq=False, repr=False)
class Look(LookRecord):
    """One input, the answer of the model, everything that was computed in between, and the views of it."""

    def heads(
        self,
        layer: int | None = None,
        head: int | None = None,
        kind: str | None = None,
        *,
        width: float = SLIDE,
        **window: Any,
    ) -> Figure:
        """A figure of one head; without a head those of a layer, without a layer all. `.save("head.svg")` writes it.

        `rows=(10, 40)` and `columns=(10, 40)` show a part of a long text.
        """
        return Heads.of(self, ViewOptions(layer=layer, head=head, kind=kind, **window)).figure(width)

    def steps(self, layer: int, head: int, query: int, kind: str | None = None) -> Steps:
        """The attention of one query of one head, step by step with its numbers."""
        return steps(self, layer, head, query, kind)

    def rollout(self, kind: str | None = None, heads: HeadFusion = "mean", residual: float = 0.5) -> Tensor:
        """(T, T): how much of each input token is in each token of the last layer, through all layers."""
        kinds = [name for name in self.attention if name.endswith(".self")]
        chosen = kinds[0] if kind is None and kinds else kind
        return rollout(self.pick(chosen).weights, heads, residual)

    def view(self, name: str, **options: Any) -> LookView:
        """A view of this look; the options are the fields of `ViewOptions`."""
        found = VIEWS[name]
        if not issubclass(found, LookView):
            raise ConfigError(f"{name} is a view of a model, not of a look: model.view({name!r}) shows it")
        return found.of(self, ViewOptions(**options))

    def to_html(self, path: str | Path | None = None, view: str = "heads", **options: Any) -> str:
        """An interactive page that needs nothing else: `heads`, `patches`, or `steps` of a layer, head and query."""
        if view not in PAGES:
            raise ProbeError(f"a look has no page called {view}; {nearest(view, PAGES)}")
        data = self.steps(**options).to_json() if view == "steps" else self.to_json()
        text = html.page(view, data, f"{self.model}: {self.text}")
        if path is not None:
            file = Path(path)
            with write_errors(file):
                file.parent.mkdir(parents=True, exist_ok=True)
                write_text(file, text)
        return text
