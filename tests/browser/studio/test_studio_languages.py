"""German in the browser: chosen by link, menu and browser, no English left on the pages, and nothing cut off."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from clearhead.studio.app import PAGE

from .conftest import Go, StudioPage, settled, until
from .test_studio_change import CAR, compared, link

GERMAN: dict[str, Any] = json.loads((PAGE / "de.json").read_text(encoding="utf-8"))
SAMPLE = ["xray", "heads", "learn", "train", "models", "what-if"]
# Every text of the page, its names for screen readers and its tooltips; not what models, files and code say.
TEXTS = """() => {
  const foreign = "bdi, pre, code, option, canvas, kbd, .ch-equation, .ch-chip, [dir=auto], [lang]:not(html)";
  const found = [];
  const walk = (node) => {
    if (node.nodeType === 3) return found.push(node.nodeValue.trim());
    if (node.nodeType !== 1 || node.matches(foreign)) return 0;
    for (const name of ["aria-label", "title", "placeholder"]) found.push((node.getAttribute(name) ?? "").trim());
    return node.childNodes.forEach(walk);
  };
  walk(document.body);
  return [...new Set(found.filter((text) => text.length > 3))];
}"""
# What is wider than its place, without a way to scroll to it.
CUT = """() => [...document.querySelectorAll("main *, nav *, aside *")].filter((one) => {
  const style = getComputedStyle(one);
  return one.scrollWidth > one.clientWidth + 1 && one.clientWidth && style.overflowX === "hidden"
    && style.textOverflow !== "ellipsis" && !one.closest("svg, canvas, select");
}).map((one) => one.outerHTML.slice(0, 120))"""

CHANGES = [
    {"kind": "weight", "layer": "decoder.1.cross", "head": 2, "query": 3, "key": 1, "weight": 0.9},
    {"kind": "head", "layer": "decoder.1.cross", "head": 2, "factor": 0.5},
    {"kind": "block", "block": "encoder.1"},
    {"kind": "seen", "layer": "decoder.1.self", "query": 3, "key": 1, "seen": False},
    {"kind": "mask", "layer": ""},
    {"kind": "positions"},
    {"kind": "place", "stack": "encoder", "token": 1, "place": 3},
    {"kind": "token", "stack": "encoder", "token": 3, "word": "blue"},
    {"kind": "temperature", "value": 1.5, "seed": 0},
    {"kind": "patch", "state": "encoder.embedded", "token": 2, "donor": "She has a blue car.", "taken": 2},
]
WEIGHT = {"node": "decoder.1.cross.weights#2", "row": 3, "column": 1}
PATCH = {"state": "encoder.embedded", "taken": 3, "token": 3}
STEP = {"kind": "decoder.cross", "layer": "1", "head": "2", "query": "3", "step": "2"}
CHANGED = {
    "every change": link("xray", text=CAR, changes=CHANGES),
    "a weight": link("xray", text=CAR, changes=CHANGES[:1], at=WEIGHT, show="difference"),
    "beams": link("xray", text=CAR, beams="3", at={"node": "beam", "row": 3, "column": None}),
    "steps": link("steps", text=CAR, changes=CHANGES[:1], **STEP),
    "patches": link("what-if", tab="patch", text=CAR, donor="She has a blue car.", patches=[PATCH]),
    "held-out data": link("what-if", tab="data", off={"layers": ["encoder.1"]}),
}
# What stays as it is: the text, names of models, keys and files, and mathematics.
KEPT = "She has red blue car Ella tiene un coche rojo azul es Es en START STOP Clearhead Studio Ctrl JSON exp log nn py"
STATE = re.compile(r"\b(en|de)coder(\.\w+)+|\w+/\w+\.py")

TRANSLATED = "async (text) => (await import('/studio/views/i18n.js')).translated(text)"

WIDE = "() => ['html', 'main'].filter((one) => $(one).scrollWidth > $(one).clientWidth + 1)".replace(
    "$(", "document.querySelector("
)


@pytest.fixture
def german(go: Go, studio_page: StudioPage) -> Any:
    def german(link: str, **size: int) -> Any:
        page = go("learn?", **size)
        page.goto(f"{studio_page.home}/studio/?lang=de#{link}")
        return page

    return german


@pytest.mark.parametrize("view", SAMPLE)
def test_a_german_page_has_no_english_and_cuts_nothing_off(german: Any, view: str) -> None:
    page = german(f"{view}?text=She%20has%20a%20red%20car." if view not in ("learn", "train", "models") else view)
    settled(page)
    assert page.evaluate("document.documentElement.lang") == "de"
    english = {sentence for sentence, text in GERMAN.items() if text != sentence and " " in sentence}
    assert [text for text in page.evaluate(TEXTS) if text in english] == []
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(100)
        assert page.evaluate(CUT) == []
        assert page.evaluate(WIDE) == []


@pytest.mark.parametrize("name", CHANGED)
def test_every_word_about_a_change_is_translated(german: Any, studio_page: StudioPage, name: str) -> None:
    """With a dictionary whose sentences are marked, no word outside the marks is left."""
    studio_page.page.route("**/de.json", lambda route: route.fulfill(json=_marked(GERMAN)))
    try:
        page = german(f"{CHANGED[name]}&model=en-es")
        settled(page)
        if "changes=" in CHANGED[name]:
            compared(page)
        if name == "held-out data":
            page.get_by_label(GERMAN["Batches"]).press("Home")
            page.get_by_role("button", name=GERMAN["Measure"]).click()
            page.locator(".st-losses li").first.wait_for(timeout=60_000)
        everything = TEXTS.replace("option, ", ".st-examples, .st-model, ").replace(".ch-chip, ", "")
        unmarked = (STATE.sub(" ", re.sub("⟦[^⟧]*⟧", " ", text)) for text in page.evaluate(everything))
        assert {word for text in unmarked for word in re.findall("[A-Za-z]{2,}", text)} - set(KEPT.split()) == set()
    finally:
        studio_page.page.unroute_all()


def _marked(sentences: Any) -> Any:
    """The same translations with ⟦marks⟧ around what stands between the placeholders."""
    if isinstance(sentences, dict):
        return {sentence: _marked(text) for sentence, text in sentences.items()}
    return "".join(
        part if place % 2 else f"⟦{part}⟧" for place, part in enumerate(re.split(r"(\{\w+\})", sentences)) if part
    )


def test_a_language_is_chosen_from_the_menu_and_remembered(go: Go, studio_page: StudioPage) -> None:
    page = go("positions?base=50")
    page.get_by_label("Language").select_option("fr")
    page.wait_for_selector("html[lang=fr]")
    until(page, "document.querySelector('h1')?.innerText === 'Positions'")
    assert "base=50" in page.url
    assert page.locator("nav a[aria-current]").inner_text() == "Positions"
    assert page.get_by_role("link", name="Entraîner").is_visible()
    page.goto(f"{studio_page.home}/studio/?lang=es#learn")  # a link is stronger than what was chosen
    page.wait_for_selector("html[lang=es]")
    page.goto(f"{studio_page.home}/studio/?lang=xx#learn")  # but not one to a language that there is not
    page.wait_for_selector("html[lang=fr]")
    page.get_by_label("Langue", exact=True).select_option("en")
    page.wait_for_selector("html[lang=en]")
    assert page.evaluate(TRANSLATED, "'a {word}' has no token 3") == "'a {word}' has no token 3"  # values stay
    page.evaluate("localStorage.removeItem('language')")


def test_the_browser_chooses_the_language_of_a_first_visit(browser: Any, studio_page: StudioPage) -> None:
    page = browser.new_page(locale="pt-BR")
    page.goto(f"{studio_page.home}/studio/#learn")
    page.wait_for_selector("html[lang=pt]")
    until(page, "document.querySelector('h1')?.innerText === 'Aprender'")
    page.close()


def test_numbers_errors_and_the_glossary_are_german_too(german: Any, studio_page: StudioPage) -> None:
    studio_page.ignored = "400 (Bad Request)"
    page = german("steps?text=She%20has%20a%20red%20car.")
    settled(page)
    assert page.locator(".ch-bars text").filter(has_text=",").count() > 0
    said = page.evaluate(TRANSLATED, "decoder.1.cross has no query 9; choose from 0 to 5")
    assert said == "decoder.1.cross hat keine Query 9; wähle aus 0 bis 5"
    assert page.locator(".st-heading .st-term").first.get_attribute("title").startswith("Der Vektor, mit dem ein Token")
    page.get_by_label("Text", exact=True).fill(" ")
    page.get_by_role("button", name="Ansehen").click()
    until(page, "document.querySelector('.st-error')?.innerText === 'der Text für en-es ist leer: schreibe etwas'")
