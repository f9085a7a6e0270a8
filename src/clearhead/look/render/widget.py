"""The interactive pages in a notebook: Jupyter, VS Code and marimo, through anywidget.

    from clearhead.look.render.widget import Heads
    heads = Heads(model.look("we are eating bread"))
    heads                   # the last line of a notebook cell shows it
    heads.chosen            # the kind, layer and head that the reader picked; assign to it to turn the page for them

There is one class for each page of `js/` (`Heads`, `Patches`, `Steps`, `Beam`, `Cells`), made when it is first used;
`widget(view)` finds the one of a view. Each shows anything whose `to_json()` has the format of the page, or that
dictionary itself.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Protocol

from clearhead.errors import ConfigError
from clearhead.look.render.html import module, page_data, pages, style
from clearhead.look.view import View

try:
    import anywidget
    import traitlets
except ImportError:
    raise ConfigError("views in a notebook need anywidget: pip install 'clearhead[studio]'") from None


class HasJson(Protocol):
    """A Look, a view, or anything else with data in a page's format."""

    def to_json(self) -> dict[str, Any]: ...


class Widget(anywidget.AnyWidget):
    """A page, its data, and what the reader chose in it."""

    page: str
    data = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)

    def __init__(self, shown: HasJson | dict[str, Any], chosen: dict[str, Any] | None = None):
        super().__init__(data=self._read(shown), chosen=chosen)

    def show(self, shown: HasJson | dict[str, Any]) -> None:
        """Show other data of the same format, and keep what the reader chose."""
        self.data = self._read(shown)

    def _read(self, shown: HasJson | dict[str, Any]) -> dict[str, Any]:
        return page_data(self.page, shown if isinstance(shown, dict) else shown.to_json())


@cache
def widget_class(page: str) -> type[Widget]:
    """The class that shows one page: a name in `js/`, or the path of a .js file."""
    return type(Path(page).stem.capitalize(), (Widget,), {"page": page, "_esm": module(page), "_css": style()})


def widget(view: View) -> Widget:
    """A view as a notebook widget."""
    if view.page is None:
        raise ConfigError(f"{type(view).__name__} has no interactive page: a notebook shows its figure()")
    return widget_class(view.page)(view.page_data())


def __getattr__(name: str) -> type[Widget]:
    if name.lower() not in pages() or name != name.capitalize():
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return widget_class(name.lower())
