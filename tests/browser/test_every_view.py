"""What holds in every view: saving, light and dark, any width, and texts that stay texts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from clearhead.look.render.html import FOLDER, module, pages, style

from . import documents
from .conftest import Open, Watched, open_view

DOCUMENTS: dict[str, Any] = {
    "heads": documents.look,
    "steps": documents.steps,
    "beam": documents.beam,
    "patches": documents.image_look,
    "cells": documents.cells,
    "scaling": documents.scaling,
    "induction": documents.induction,
    "importance": documents.importance,
    "lens": documents.lens,
    "relevance": documents.relevance,
    "gradients": documents.gradients,
    "flow": documents.flow,
    "positions": documents.positions,
    "history": documents.history,
    "xray": documents.xray,
}
WORD = {  # that the drawing of a view must have
    "heads": "coche", "steps": "car", "beam": "auto", "patches": "", "cells": "T", "scaling": "64",
    "induction": "layer 1", "importance": "head 2", "lens": "coche", "relevance": "car", "gradients": "car",
    "flow": "car", "positions": "distance", "history": "coche", "xray": "",
}  # fmt: skip
EVIL = '</script><img src=x onerror="window.hurt = true">&"\'`${1}'


def test_every_view_has_a_document() -> None:
    assert set(DOCUMENTS) == set(pages())


# --- each view is opened once for these tests, which leave it as they found it ---


@pytest.fixture(scope="module", params=pages())
def view(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shown(watched: Watched, view: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of the view that is open."""
    data: dict[str, Any] = DOCUMENTS[view]()
    watched.said.clear()
    open_view(watched.page, tmp_path_factory.mktemp(view), view, data)
    assert watched.said == []
    return data


@pytest.mark.usefixtures("shown")
def test_every_control_has_a_name_and_can_be_reached(page: Any) -> None:
    nameless = """all => all.filter(one =>
      !(one.getAttribute("aria-label") || one.innerText || one.closest("label")?.innerText)
    ).map(one => one.outerHTML)"""
    assert page.locator("button, input, select, [role=button], [tabindex]").evaluate_all(nameless) == []
    parts = {"ch-tools": ".ch-tools > *", "ch-figure": ".ch-figure :is(button, select, input, [tabindex])"}
    wanted = {"ch-saving"} | {name for name, inside in parts.items() if page.locator(inside).count()}
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.closest('.ch-saving, .ch-tools, .ch-figure')?.className"))
    assert wanted <= reached


def saved(page: Any, kind: str, folder: Path) -> Path:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Save as {kind}").click()
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file


def test_it_saves_a_drawing_a_picture_and_its_data(page: Any, tmp_path: Path, view: str, shown: dict[str, Any]) -> None:
    drawing = ElementTree.parse(saved(page, "SVG", tmp_path)).getroot()
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    words = [element.text or "" for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert not WORD[view] or WORD[view] in words
    assert "var(--" not in ElementTree.tostring(drawing, encoding="unicode")
    assert saved(page, "PNG", tmp_path).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert json.loads(saved(page, "JSON", tmp_path).read_text(encoding="utf-8")) == shown


@pytest.mark.usefixtures("shown")
def test_it_follows_the_system_into_the_dark_and_the_page_out_of_it(page: Any) -> None:
    paper = "getComputedStyle(document.querySelector('.clearhead')).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) == "rgb(18, 21, 27)"
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.evaluate("delete document.documentElement.dataset.theme")


@pytest.mark.usefixtures("shown")
def test_it_fits_any_width(page: Any) -> None:
    for width in (400, 1920, 640):
        page.set_viewport_size({"width": width, "height": 760})
        page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
        inside = "all => all.every(one => one.getBoundingClientRect().right <= innerWidth + 1)"
        page.wait_for_timeout(30)
        assert page.locator(".ch-figure > *, .ch-tools > *, .ch-large svg").evaluate_all(inside)


# --- other documents ---


def test_what_is_drawn_is_drawn_again_in_the_dark(show: Open) -> None:
    page = show("heads", documents.look())
    picture = "document.querySelector('.ch-grid canvas').toDataURL()"  # the browser grumbles if pixels are read often
    light = page.evaluate(picture)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{picture} !== '{light}'")


def test_thirty_layers_stand_across_a_wide_page_and_down_a_phone(show: Open) -> None:
    scores = [[(layer * head % 7) / 10 for head in range(9)] for layer in range(30)]
    every = {f"decoder.{layer}.self": row for layer, row in enumerate(scores)}
    documents_of = {
        "induction": {**documents.induction(), **dict.fromkeys(("induction", "previous", "repeated"), scores)},
        "importance": {**documents.importance(), "method": "gradient", "heads": every},
    }
    box = "document.querySelector('.ch-matrix')?.getBoundingClientRect()"
    for view, data in documents_of.items():
        page = show(view, data)
        page.set_viewport_size({"width": 1280, "height": 720})
        page.wait_for_function(f"{box}?.width > 600 && {box}?.height < 0.62 * innerHeight")
        page.locator(".ch-matrix").focus()
        page.keyboard.press("ArrowRight")  # to the next layer
        assert "ayer 1, head 0" in page.get_by_role("status").inner_text()
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function(f"{box}?.width < 390 && {box}?.height > 390")


ONE = documents.attended(["one"], ["one"])
SINGLE = {
    "heads": documents.look(attention={"decoder.self": ONE}),
    "patches": documents.look(attention={"decoder.self": ONE}),
    "steps": {**documents.steps(), "rows": ["one"], "query": 0},
    "beam": {**documents.beam(), "nodes": documents.beam()["nodes"][:2], "best": 1},
    "cells": {**documents.cells(), "tokens": ["T"], "values": [0.0], "units": [], "ranking": []},
    "scaling": {**documents.scaling(), **{name: documents.scaling()[name][:1] for name in ("plain", "scaled")}},
    "induction": {**documents.induction(), "induction": [[0.5]], "previous": [[0.0]], "repeated": [[1.0]]},
    "importance": {**documents.importance(), "heads": {"encoder.0.self": [0.0]}},
    "lens": {
        **documents.lens(),
        "tokens": ["one"],
        "layers": [[[["two", 1.0]]]],
        "rank": [[0]],
        "probability": [[1.0]],
    },
    "relevance": {**documents.relevance(), "rows": ["one"], "query": 0, "tokens": ["one"], "values": [0.0]},
    "gradients": {**documents.gradients(), "rows": ["one"], "query": 0, "tokens": ["one"], "values": [0.0]},
    "flow": {**documents.flow(), "tokens": ["one"], "shares": [[1.0]]},
    "positions": {**documents.positions(), "vectors": [[0.0]], "products": [[[0.0]]], "by_distance": [[0.0]]},
    "history": {
        **documents.history(),
        "steps": [3],
        "attention": {"decoder.self": {**ONE, "weights": [ONE["weights"]]}},
    },
    "xray": documents.small_xray("lm", layers=1).to_json(),
}


@pytest.mark.parametrize("view", pages())
def test_a_single_token_is_shown(show: Open, view: str) -> None:
    page = show(view, SINGLE[view])
    assert page.locator(".ch-figure > *").count() > 0
    assert page.locator("[width='NaN'], [height='NaN'], [x='NaN'], [d*='NaN']").count() == 0


def evil(value: Any, key: str = "") -> Any:
    """The same document with every text that comes from outside replaced by an attack."""
    if isinstance(value, dict):
        return {name: evil(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [evil(each, key) for each in value]
    fixed = key in ("format", "kind", "state", "task")
    return EVIL if isinstance(value, str) and not fixed else value


def evil_xray(document: dict[str, Any]) -> dict[str, Any]:
    """Its tokens, names and sentences replaced; the rest is the names of its own parts."""
    said = ("name", "about", "equation", "symbol", "model", "text", "output", "code", "names")

    def attacked(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: attacked(each, name) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [attacked(each, key) for each in value]
        return EVIL if key in said and isinstance(value, str) else value

    axes = {name: [EVIL for _ in words] for name, words in document["axes"].items()}
    return {**attacked(document), "axes": axes}


@pytest.mark.parametrize("view", pages())
def test_no_text_becomes_markup(show: Open, view: str) -> None:
    document = DOCUMENTS[view]()
    attack = evil_xray(document) if view == "xray" else evil(document)
    page = show(view, attack, title=EVIL)
    assert page.title() == EVIL
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
    assert attack == document or "onerror" in page.locator(".clearhead").inner_text()


# --- the modules as a page that is served imports them, and as a notebook does ---


def served(page: Any) -> Any:
    """An empty page of an origin that only knows the folder of the views."""

    def answer(route: Any) -> None:
        name = route.request.url.rsplit("/", 1)[-1]
        kinds = {"js": "text/javascript", "css": "text/css"}
        if not name:
            route.fulfill(body=f"<!doctype html><style>{style()}</style><div id=view></div>", content_type="text/html")
        elif name == "favicon.ico":
            route.fulfill(body="", content_type="image/x-icon")
        else:
            body = (FOLDER / name).read_text(encoding="utf-8")
            route.fulfill(body=body, content_type=kinds[name.rsplit(".", 1)[-1]])

    page.route("https://views.test/**", answer)
    page.goto("https://views.test/")
    return page


@pytest.mark.parametrize("view", pages())
def test_the_modules_are_imported_as_they_are(page: Any, view: str) -> None:
    served(page)
    mount = f"""async data => {{
      const {{ mount }} = await import("https://views.test/{view}.js");
      window.view = mount(document.getElementById("view"), data, {{ onChange: chosen => (window.chosen = chosen) }});
    }}"""
    page.evaluate(mount, DOCUMENTS[view]())
    assert page.locator(".clearhead").count() == 1
    page.evaluate("data => window.view.update(data)", DOCUMENTS[view]())
    assert page.locator(".clearhead").count() == 1
    page.evaluate("window.view.destroy()")
    assert page.locator(".clearhead").count() == 0


def test_what_is_chosen_is_told_and_can_be_restored(page: Any) -> None:
    served(page)
    mount = """async ([data, chosen]) => {
      const { mount } = await import("https://views.test/heads.js");
      window.view = mount(document.getElementById("view"), data, { chosen, onChange: now => (window.chosen = now) });
    }"""
    page.evaluate(mount, [documents.look(), {"kind": "encoder.self", "layer": 0, "head": 1, "shape": "matrix"}])
    assert page.locator(".ch-large strong").inner_text() == "Layer 0, head 1"
    page.get_by_role("gridcell", name="Layer 1, head 2").click()
    expected = {"kind": "encoder.self", "layer": 1, "head": 2, "shape": "matrix", "token": None}
    assert page.evaluate("window.chosen") == expected
    words = ["one", "two"]
    smaller = documents.look(attention={"encoder.self": documents.attended(words, words, layers=1, heads=1)})
    page.evaluate("data => window.view.update(data)", smaller)
    assert page.locator(".ch-large strong").inner_text() == "Layer 0, head 0"


MODEL = """class Model {
  constructor(values) { this.values = values; this.listeners = {}; this.saved = 0; }
  get(name) { return this.values[name]; }
  set(name, value) { this.values[name] = value; (this.listeners[`change:${name}`] ?? []).forEach(each => each()); }
  save_changes() { this.saved += 1; }
  on(name, listener) { (this.listeners[name] ??= []).push(listener); }
  off(name, listener) { this.listeners[name] = this.listeners[name].filter(each => each !== listener); }
}"""


def test_a_notebook_shows_it_and_hears_what_was_chosen(page: Any) -> None:
    served(page)
    render = f"""async ([code, data]) => {{
      {MODEL}
      const url = URL.createObjectURL(new Blob([code], {{ type: "text/javascript" }}));
      const widget = (await import(url)).default;
      window.model = new Model({{ data, chosen: null }});
      window.stop = widget.render({{ model: window.model, el: document.getElementById("view") }});
    }}"""
    page.evaluate(render, [module("beam"), documents.beam()])
    page.get_by_role("treeitem", name="auto").click()
    assert page.evaluate("[window.model.get('chosen'), window.model.saved]") == [{"node": 5, "dropped": False}, 1]
    page.evaluate("window.model.set('chosen', {node: 2, dropped: true})")
    assert page.get_by_role("treeitem").count() == 8
    assert page.locator(".ch-chip").all_inner_texts() == ["la"]
    page.evaluate("window.stop()")
    assert page.locator(".clearhead").count() == 0
    assert page.evaluate("Object.values(window.model.listeners).flat().length") == 0


def test_a_hidden_view_is_drawn_when_it_is_shown(page: Any) -> None:
    served(page)
    mount = """async data => {
      const { mount } = await import("https://views.test/heads.js");
      document.getElementById("view").style.display = "none";
      mount(document.getElementById("view"), data);
    }"""
    page.evaluate(mount, documents.look())
    assert page.get_by_role("gridcell").count() == 0
    page.evaluate("document.getElementById('view').style.display = 'block'")
    page.get_by_role("gridcell").first.wait_for()


def test_the_style_sheet_defines_every_token_that_is_used() -> None:
    texts = [file.read_text(encoding="utf-8") for file in sorted(FOLDER.iterdir())]
    used = {name for text in texts for name in re.findall(r"var\((--ch-[\w-]+)\)", text)}
    assert used <= set(re.findall(r"(--ch-[\w-]+):", style()))
