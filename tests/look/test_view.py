"""Views as a whole: the options, how a view is saved, what `clearhead.look` exports."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

import clearhead
from clearhead import look as package
from clearhead.errors import ConfigError, ProbeError
from clearhead.look.look import Look
from clearhead.look.view import VIEWS, LookView, ViewOptions, show
from clearhead.look.views.scaling import Scaling, scaling

TOKENS = ["the", "red", "car"]


def test_every_exported_name_is_an_object_and_not_a_module() -> None:
    importlib.import_module("clearhead.look.probes")
    for name in package.__all__:
        assert not isinstance(getattr(package, name), types.ModuleType), name
    assert sorted(package.__all__) == sorted(package._MODULES)
    with pytest.raises(AttributeError, match="has no attribute nothing"):
        _ = package.nothing


def test_the_names_of_views_are_known_without_torch() -> None:
    code = "import sys; from clearhead.look.view import VIEWS; VIEWS.builtin(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_matplotlib_is_imported_when_a_figure_is_drawn() -> None:
    code = "import sys; import clearhead.look.look; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_query_is_a_position_or_a_token() -> None:
    assert ViewOptions().query_index(TOKENS) is None
    assert ViewOptions(query=1).query_index(TOKENS) == 1
    assert ViewOptions(query="2").query_index(TOKENS) == 2
    assert ViewOptions(query="car").query_index(TOKENS) == 2
    with pytest.raises(ProbeError, match="no query is called bus; choose from: the, red, car, or a number"):
        ViewOptions(query="bus").query_index(TOKENS)


def test_a_view_is_saved_by_the_suffix_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = scaling((2, 8), keys=3, queries=5)
    assert view.save(tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert json.loads(view.save(tmp_path / "a.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(view.to_json())
    )
    assert "clearhead-scaling-1" in view.save(tmp_path / "a.html").read_text(encoding="utf-8")
    monkeypatch.setattr(Scaling, "page", None)
    with pytest.raises(ConfigError, match=r"this view has no page: choose another suffix, or a view with a page: beam"):
        view.save(tmp_path / "a.html")
    with pytest.raises(ConfigError, match=r"cannot write .*a\.gif: choose a name that ends in \.svg, \.pdf, \.png, "):
        view.save(tmp_path / "a.gif")


def test_views_of_a_look_need_no_model(tmp_path: Path) -> None:
    model = clearhead.load("en-es")
    look = model.look("the red car")
    look.save(tmp_path)
    stored = Look.load(tmp_path)
    for name in ("heads", "lines", "rollout"):
        assert stored.view(name).to_json() == show(model, name, item="the red car").to_json()
    with pytest.raises(ProbeError, match="this look at en-es was loaded from a file: look again with the model itself"):
        stored.view("relevance")
    with pytest.raises(ConfigError, match="positions is a view of a model, not of a look"):
        look.view("positions")


@pytest.mark.parametrize("name", ["heads", "steps", "rollout", "relevance", "gradients", "lens"])
def test_every_view_of_one_input_is_made_of_its_look(name: str) -> None:
    assert issubclass(VIEWS[name], LookView)
