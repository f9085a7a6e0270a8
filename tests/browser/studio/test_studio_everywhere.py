"""Every view: the tour, saving, themes, window sizes, the keyboard, and no markup from texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from .conftest import Go, StudioPage, settled, until

VIEWS = [
    "xray", "play", "heads", "steps", "beam", "image", "what-if", "words", "positions", "cells", "learn", "train",
    "chat", "models", "rollout", "flow", "lens", "relevance", "gradients", "induction", "importance", "scaling",
]  # fmt: skip
SAVING = ["play", "heads", "words"]  # those of the page, and one of the package's views
AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
VIOLATIONS = """async () => {
  await Promise.allSettled(document.getAnimations().map((each) => each.finished)); // colours still change
  const options = { runOnly: ["wcag2a", "wcag2aa"], resultTypes: ["violations"] };
  const { violations } = await axe.run(document, options);
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes[0].html} ${nodes[0].failureSummary}`);
}"""
EVIL = "</script><script>hurt=1</script><img src=x onerror=hurt=1>"


def test_every_idea_leads_to_a_view_and_shows_its_code(go: Go) -> None:
    page = go("learn?idea=0")
    page.wait_for_selector(".st-idea")
    links = [each.split("#")[1] for each in page.locator(".st-idea a").evaluate_all("all => all.map(one => one.href)")]
    assert len(links) == 16
    assert {each.split("?")[0] for each in links} <= set(VIEWS)
    page.locator(".st-code summary").nth(0).click()
    page.locator(".st-code summary").nth(2).click()
    assert "def scaled_dot(" in page.locator(".st-code pre").nth(2).inner_text()
    until(page, "location.hash.includes('idea=2')")
    page.reload()
    page.wait_for_selector(".st-code[open]")
    assert page.locator(".st-code[open] summary").inner_text().startswith("The code: nn/scores.py")
    page.locator(".st-idea a").nth(3).click()
    page.wait_for_selector(".ch-steps h2")
    assert page.locator("nav [aria-current]").inner_text() == "Steps"


def test_the_tour_leads_through_ten_stops(go: Go) -> None:
    page = go("learn?")
    page.get_by_role("link", name="Take the tour").click()
    seen = []
    for stop in range(1, 11):
        until(page, f"document.querySelector('.st-tour')?.innerText.includes('Stop {stop} of 10')")
        page.wait_for_selector(".ch-figure > *, .st-hint")
        seen.append(page.locator("nav [aria-current]").inner_text())
        page.locator(".st-tour .st-go").click()
    page.wait_for_selector(".st-ideas")
    assert set(seen) == {"Play", "Heads", "Steps", "What if", "Positions", "Beam", "Image", "Words"}
    assert page.locator(".st-tour").count() == 0


def test_the_tour_can_be_closed(go: Go) -> None:
    page = go("positions?tour=6")
    page.get_by_role("button", name="Leave the tour").click()
    assert page.locator(".st-tour").count() == 0
    assert "tour" not in page.url


@pytest.mark.parametrize("view", SAVING)
def test_it_saves_a_drawing_a_picture_and_its_data(go: Go, tmp_path: Path, view: str) -> None:
    page = go(view)
    page.wait_for_selector(".ch-saving")
    settled(page)
    for kind, head in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("JSON", b"{")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Save as {kind}").first.click()
        file = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(file)
        assert file.read_bytes().startswith(head)
    assert json.loads(file.read_text(encoding="utf-8"))["format"].startswith("clearhead-")


NARROW = "[document.documentElement, document.getElementById('view')].every(e => e.scrollWidth <= e.clientWidth)"
PAPER = "getComputedStyle(document.body).backgroundColor"
CONTROLS = "button, input, select, textarea, a, [role=button], [tabindex='0']"
NAMELESS = """all => all.filter(one => !one.hidden && one.type !== "file" &&
  !(one.getAttribute("aria-label") || one.innerText?.trim() || one.closest("label")?.innerText)
).map(one => one.outerHTML)"""


def serious(page: Any) -> list[str]:
    """What axe-core finds against WCAG A and AA."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(f"() => {{{AXE.read_text(encoding='utf-8')}}}")
    return list(page.evaluate(VIOLATIONS))


@pytest.mark.parametrize("view", VIEWS)
def test_it_fits_any_window_in_light_and_dark_and_names_its_controls(go: Go, view: str) -> None:
    page = go(view)
    settled(page)
    for width, height in ((700, 800), (2560, 1440), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(50)
        assert page.evaluate(NARROW)
    assert page.evaluate(PAPER) == "rgb(255, 255, 255)"
    assert serious(page) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(PAPER) == "rgb(18, 21, 27)"
    assert serious(page) == []
    assert page.locator(CONTROLS).evaluate_all(NAMELESS) == []
    assert page.locator("h1").count() == 1


SPREAD = """selector => {
  const view = document.querySelector("main .st-view").getBoundingClientRect();
  const boxes = [...document.querySelectorAll(selector)].map(one => one.getBoundingClientRect());
  return boxes.some(box => box.left > view.left + view.width / 4 && box.top < 0.6 * innerHeight
    && box.right > view.left + view.width / 2);
}"""


@pytest.mark.parametrize(
    ("view", "beside"),
    [
        ("play", ".st-alternatives"),
        ("flow", ".ch-lines"),
        ("induction", ".ch-pattern"),
        ("lens", ".ch-rivals"),
        ("relevance", ".ch-rivals"),
        ("rollout", ".ch-everyone .ch-rivals"),
    ],
)
def test_a_wide_window_has_what_is_chosen_beside_the_drawing(go: Go, view: str, beside: str) -> None:
    page = go(view, width=1920, height=1080)
    settled(page)
    page.locator(beside).first.wait_for()
    assert page.evaluate(SPREAD, beside)


def test_a_phone_has_models_as_a_list_the_search_and_a_menu_for_the_thumb(go: Go) -> None:
    page = go("models", width=390, height=844)
    settled(page)
    table = page.locator(".st-model-table")
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth && one.clientWidth <= 390")
    assert page.get_by_role("link", name="Use").first.bounding_box()["x"] < 390
    assert page.get_by_role("button", name="Find…").bounding_box()["x"] >= 0
    page.get_by_role("button", name="Card").first.click()
    row = page.locator(".st-card tr", has_text="parameters")  # of the table, as a table
    row.wait_for()
    until(page, "document.querySelector('.st-card').getBoundingClientRect().top < innerHeight")
    where = page.get_by_role("button", name="Models")  # the menu says which view is open
    where.click()
    links = page.locator(".st-links a")
    thumb = "all => all.every(one => one.offsetHeight >= 44 && one.scrollWidth <= one.clientWidth)"
    assert links.evaluate_all(thumb)
    page.keyboard.press("Escape")  # from a link or from the button
    assert where.get_attribute("aria-expanded") == "false"
    where.click()
    links.get_by_text("Positions").click()
    page.get_by_role("button", name="Positions").wait_for()
    assert not links.first.is_visible()


def test_light_or_dark_is_remembered(go: Go) -> None:
    page = go("learn?")
    page.get_by_label("Light or dark").select_option("dark")
    assert page.evaluate(PAPER) == "rgb(18, 21, 27)"
    page.reload()
    page.wait_for_selector(".st-idea")
    assert page.evaluate(PAPER) == "rgb(18, 21, 27)"
    page.get_by_label("Light or dark").select_option("")
    assert page.evaluate(PAPER) == "rgb(255, 255, 255)"


def test_the_keyboard_reaches_the_view_past_the_links(go: Go) -> None:
    page = go("heads")
    settled(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "To the view"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    assert page.url.split("#")[1].startswith("heads")


def test_the_text_is_kept_when_another_view_opens(go: Go) -> None:
    page = go("heads?text=A+dog+sees+a+cat.")
    settled(page)
    page.get_by_role("link", name="Beam").click()
    page.wait_for_selector(".ch-beam h2")
    assert page.locator(".ch-beam h2").inner_text() == "A dog sees a cat."
    page.get_by_role("link", name="Words").click()
    page.wait_for_selector(".ch-word-map h2")
    page.go_back()
    page.wait_for_selector(".ch-beam h2")


def test_an_unknown_link_opens_the_first_view(go: Go) -> None:
    page = go("nonsense?at={{{&model=nobody")
    page.wait_for_selector(".ch-stage canvas")
    assert page.locator("h1").inner_text() == "X-ray"


@pytest.mark.parametrize("view", ["play", "steps", "what-if", "words"])
def test_no_text_of_a_link_becomes_markup(go: Go, studio_page: StudioPage, view: str) -> None:
    studio_page.ignored = "status of 400"
    names = ("text", "words", "word", "sum", "at", "kind", "feature", "layer", "runs", "upload", "off", "changes")
    page = go(f"{view}?{'&'.join(f'{name}={quote(EVIL)}' for name in names)}")
    settled(page)  # or its errors would be those of the next test
    page.wait_for_timeout(300)
    assert page.evaluate("window.hurt") is None
    assert page.locator("img, main script").count() == 0


def test_an_inline_script_does_not_run(go: Go, studio_page: StudioPage) -> None:
    page = go("learn?")
    page.wait_for_selector(".st-idea")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hurt = 1'}))"
    )
    assert page.evaluate("window.hurt") is None
    studio_page.ignored = "Content Security Policy"
    assert any(studio_page.ignored in said for said in studio_page.said)


def test_the_page_reports_a_server_that_does_not_answer(go: Go, studio_page: StudioPage) -> None:
    studio_page.ignored = "ERR_FAILED"
    page = go("heads")
    settled(page)
    page.route("**/look", lambda route: route.abort())
    page.get_by_role("button", name="Look", exact=True).click()
    page.wait_for_selector(".st-error:not([hidden])")
    assert "does not answer" in page.get_by_role("alert").inner_text()
    page.unroute("**/look")
    page.get_by_role("button", name="Look", exact=True).click()
    page.wait_for_selector(".st-error", state="hidden")
