"""The interactive views in a notebook: Jupyter, VS Code and marimo, through anywidget.

    from clearhead.look.widgets import Heads
    view = Heads(model.look("we are eating bread"))
    view                   # the last line of a notebook's cell shows it
    view.chosen            # the kind, layer and head that the reader picked; set it to turn the page for them

Each view shows what has a `to_json()` of its format, or that dictionary itself.
"""

from __future__ import annotations

from typing import Any, Protocol

from clearhead.errors import ConfigError
from clearhead.look.html import module, readable, style

try:
    import anywidget
    import traitlets
except ImportError:
    raise ConfigError("views in a notebook need anywidget: pip install 'clearhead[studio]'") from None


class Shown(Protocol):
    """What can be shown: a Look, Steps, a BeamTree, Cells."""

    def to_json(self) -> dict[str, Any]:
        """As the views read it."""


class View(anywidget.AnyWidget):
    """A view, its data, and what the reader chose in it."""

    view: str  # its name
    data = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)

    def __init__(self, shown: Shown | dict[str, Any], chosen: dict[str, Any] | None = None):
        super().__init__(data=self._read(shown), chosen=chosen)

    def show(self, shown: Shown | dict[str, Any]) -> None:
        """Show something else of the same kind, and stay where the reader is."""
        self.data = self._read(shown)

    def _read(self, shown: Shown | dict[str, Any]) -> dict[str, Any]:
        return readable(self.view, shown if isinstance(shown, dict) else shown.to_json())


class Heads(View):
    """Every head of a Look, one of them large, as lines or as a matrix."""

    view = "heads"
    _esm = module("heads")
    _css = style()


class Patches(View):
    """Where a model looks, over the image or the text of a Look: rollout or attention."""

    view = "patches"
    _esm = module("patches")
    _css = style()


class Steps(View):
    """The steps of one query, with their numbers."""

    view = "steps"
    _esm = module("steps")
    _css = style()


class Beam(View):
    """The tree of a beam search."""

    view = "beam"
    _esm = module("beam")
    _css = style()


class Cells(View):
    """A text coloured by a unit."""

    view = "cells"
    _esm = module("cells")
    _css = style()
