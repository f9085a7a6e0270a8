from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="needs anywidget: pip install 'clearhead[studio]'")

from clearhead.errors import ConfigError
from clearhead.look.render import widget as module_of_widgets
from clearhead.look.render.html import module, pages, style
from clearhead.look.render.widget import Beam, Heads, Widget, widget
from clearhead.look.views.beam import Beam as BeamView
from clearhead.look.views.beam import BeamTree, Node
from clearhead.look.views.scaling import Scaling, scaling

WIDGETS = tuple(getattr(module_of_widgets, name.capitalize()) for name in pages())


class PagelessScaling(Scaling):
    """A view that only has a figure."""

    page = None


class Shown:
    """Something with a document."""

    def __init__(self, view: str):
        self.document = {"format": pages()[view], "scores": [1.0, -math.inf]}

    def to_json(self) -> dict[str, Any]:
        return self.document


def test_every_page_is_a_widget() -> None:
    assert {made_by.page: made_by.__name__ for made_by in WIDGETS} == {name: name.capitalize() for name in pages()}


@pytest.mark.parametrize("made_by", WIDGETS)
def test_a_widget_has_its_module_its_style_and_its_data(made_by: type[Widget]) -> None:
    made = made_by(Shown(made_by.page))
    assert made._esm == module(made_by.page)
    assert made._css == style()
    assert made.get_state(["data", "chosen"]) == {
        "data": {"format": pages()[made_by.page], "scores": [1.0, "-Infinity"]},
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
    with pytest.raises(ConfigError, match="the page heads shows clearhead-look-1, not clearhead-beam-1"):
        made.show(Shown("beam"))


def test_without_anywidget_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['anywidget'] = None; import clearhead.look.render.widget"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last == ("clearhead.errors.ConfigError: views in a notebook need anywidget: pip install 'clearhead[studio]'")


def test_a_view_finds_its_widget() -> None:
    tree = BeamTree([Node(0, None, 0, "[START]", 0.0, 0.0, 0.0, "kept")], "bread", 0)
    made = widget(BeamView(tree))
    assert isinstance(made, Beam)
    assert made.data == tree.to_json()
    made = widget(scaling((2,), keys=3, queries=5))
    assert made.data["format"] == "clearhead-scaling-1"
    with pytest.raises(ConfigError, match="PagelessScaling has no interactive page: a notebook shows its figure"):
        widget(PagelessScaling(3, [], []))
