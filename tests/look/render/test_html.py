from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import clearhead
from clearhead.errors import ConfigError, ProbeError
from clearhead.look.render.html import FOLDER, finite, module, page, pages, style

MODULES = sorted(FOLDER.glob("*.js"))
DATA = {"format": "clearhead-look-1", "text": "</script><b>&", "values": [1.5, math.inf, -math.inf, math.nan]}


def embedded(text: str) -> str:
    """The data inside a page."""
    [found] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return str(found)


def test_a_page_carries_its_data_as_data() -> None:
    text = page("heads", DATA, "one")
    assert "<" not in embedded(text)
    assert json.loads(embedded(text)) == {**DATA, "values": [1.5, "Infinity", "-Infinity", "NaN"]}


def test_a_page_escapes_its_title() -> None:
    assert "<title>a &lt;b&gt; &amp; c</title>" in page("heads", DATA, "a <b> & c")


@pytest.mark.parametrize("name", pages())
def test_a_page_asks_for_nothing(name: str) -> None:
    text = page(name, {"format": pages()[name]}, "one")
    addresses = set(re.findall(r"https?://[^\"'\s)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<script[^>]*src|@import|url\(", text)


@pytest.mark.parametrize("name", pages())
def test_a_module_is_joined_from_all_it_imports(name: str) -> None:
    text = module(name)
    assert not re.findall(r"^import .*", text, re.MULTILINE)
    assert re.findall(r"^export .*", text, re.MULTILINE) == [
        f"export const {{ mount }} = {name}_js;",
        f"export default {name}_js.widget;",
    ]
    constants = re.findall(r"^const (\w+_js) = ", text, re.MULTILINE)
    assert len(constants) == len(set(constants))
    for position, constant in enumerate(constants):  # each before those that need it
        assert constant not in constants[:position]
        used = re.search(rf"= {constant};", text)
        assert used is None or used.start() > text.index(f"const {constant} = ")


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_view_never_makes_markup_of_text(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|fetch\(", text)


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_imports_only_what_another_exports_and_all_it_imports_is_used(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for names, other in re.findall(r'^import \{([^}]*)\} from "\./(\w+)\.js";', text, re.MULTILINE):
        source = (FOLDER / f"{other}.js").read_text(encoding="utf-8")
        exported = re.findall(r"^export (?:async )?(?:function|const) (\w+)", source, re.MULTILINE)
        for each in map(str.strip, names.split(",")):
            name, _, renamed = each.partition(" as ")
            assert name in exported
            used = renamed or name
            assert len(re.findall(rf"\b{used}\b", text)) > 1, f"{file} does not use {used}"


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_module_reads_like_the_rest_of_the_code(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.startswith("// ")
    assert [line for line in text.splitlines() if len(line) > 120] == []
    exported = re.findall(r"(.*)\n(?:export (?:async )?function \w+)", text)
    assert all(before.endswith("*/") for before in exported)


def test_an_unknown_view_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"there is no page 'patch': did you mean patches\?"):
        page("patch", {}, "one")


def test_data_of_another_format_says_what_the_view_shows() -> None:
    with pytest.raises(ConfigError, match="the page beam shows clearhead-beam-1, not clearhead-look-1"):
        page("beam", DATA, "one")
    with pytest.raises(ConfigError, match="the page cells shows clearhead-cells-1, not data without a format"):
        page("cells", {}, "one")


def test_a_model_without_attention_has_nothing_to_show() -> None:
    look = {"format": "clearhead-look-1", "model": "words", "attention": {}}
    with pytest.raises(ProbeError, match="words has no attention, so the page patches has nothing to show"):
        page("patches", look, "one")


def test_plain_leaves_everything_else_alone() -> None:
    data = {"a": [1, 2.5, None, True, "x"], "b": {"c": (0.0, -1)}}
    assert finite(data) == {"a": [1, 2.5, None, True, "x"], "b": {"c": [0.0, -1]}}


def test_the_style_has_a_dark_value_for_every_colour() -> None:
    colours = re.findall(r"(--ch-[\w-]+): ([^;]*#[^;]*);", style())
    assert len(colours) > 15
    assert all(value.startswith("light-dark(") for _, value in colours)


SCRIPTS = sorted(Path(clearhead.__file__).parent.rglob("*.js"))


def test_no_page_makes_html_of_text() -> None:
    """Labels, tokens and cards come from strangers: text is set as text, never parsed as HTML or code."""
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|ContextualFragment|\beval\(|new Function"
    assert len(SCRIPTS) > 30
    assert [file.name for file in SCRIPTS if re.search(sinks, file.read_text(encoding="utf-8"))] == []
