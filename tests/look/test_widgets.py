from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="needs anywidget: pip install 'clearhead[studio]'")

from clearhead.errors import ConfigError
from clearhead.look.html import VIEWS, module, style
from clearhead.look.widgets import Beam, Cells, Heads, Patches, Steps, View

WIDGETS = (Heads, Patches, Steps, Beam, Cells)


class Shown:
    """Something with a document."""

    def __init__(self, view: str):
        self.document = {"format": VIEWS[view], "scores": [1.0, -math.inf]}

    def to_json(self) -> dict[str, Any]:
        return self.document


def test_every_view_is_a_widget() -> None:
    assert {widget.view: widget for widget in WIDGETS} == dict(zip(VIEWS, WIDGETS, strict=True))


@pytest.mark.parametrize("widget", WIDGETS)
def test_a_widget_has_its_module_its_style_and_its_data(widget: type[View]) -> None:
    made = widget(Shown(widget.view))
    assert made._esm == module(widget.view)
    assert made._css == style()
    assert made.get_state(["data", "chosen"]) == {
        "data": {"format": VIEWS[widget.view], "scores": [1.0, "-Infinity"]},
        "chosen": None,
    }


def test_a_widget_takes_a_document_and_a_choice() -> None:
    made = Beam({"format": "clearhead-beam-1", "nodes": [1, 2, 3]}, chosen={"node": 2})
    assert made.data["nodes"] == [1, 2, 3]
    assert made.chosen == {"node": 2}


def test_a_widget_shows_something_else_of_its_kind() -> None:
    made = Heads({"format": "clearhead-look-1", "text": "one"}, chosen={"layer": 1})
    made.show(Shown("patches"))  # a look too
    assert made.data["scores"] == [1.0, "-Infinity"]
    assert made.chosen == {"layer": 1}
    with pytest.raises(ConfigError, match="the view heads shows clearhead-look-1, not clearhead-beam-1"):
        made.show(Shown("beam"))


def test_without_anywidget_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['anywidget'] = None; import clearhead.look.widgets"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last == ("clearhead.errors.ConfigError: views in a notebook need anywidget: pip install 'clearhead[studio]'")
