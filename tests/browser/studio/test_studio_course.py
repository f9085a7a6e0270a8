"""The course, the palette, undo, teacher's mode, and selections that views hand on."""

from __future__ import annotations

from typing import Any

from .conftest import Go, settled, until

CAR = "text=She+has+a+red+car."
APART = """() => {
  const [view, side] = ["#view", ".st-side"].map(name => document.querySelector(name).getBoundingClientRect());
  return view.right <= side.left + 1 || side.bottom <= view.top + 1;
}"""


def test_a_lesson_checks_its_question_and_progress_is_kept(go: Go) -> None:
    page = go("learn?")
    page.get_by_role("link", name="Start with lesson 1").click()
    page.wait_for_selector(".st-lesson")
    assert "model=en-es" in page.url  # its sentences are about this translator, whatever else is loaded
    assert page.locator(".st-lesson h2").inner_text() == "Query, key and value"
    assert page.evaluate(APART)
    page.get_by_role("radio", name="The query with every value").check()
    assert page.locator(".st-verdict").inner_text().startswith("Not quite")
    page.get_by_role("radio", name="The query with every key").check()
    assert page.locator(".st-verdict").inner_text().startswith("Right. Query and key decide where to look.")
    page.get_by_role("link", name="Next lesson").click()
    until(page, "document.querySelector('.st-lesson h2')?.innerText === 'Why divide by √d'")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate(APART)
    page.get_by_role("button", name="Leave").click()
    assert page.locator(".st-lesson").count() == 0
    page.goto(page.url.split("#")[0] + "#learn")
    page.wait_for_selector(".st-course")
    assert "1 of 10 done" in page.locator(".st-course").inner_text()
    page.evaluate("localStorage.clear()")


def test_words_explain_themselves(go: Go) -> None:
    page = go("learn?")
    page.get_by_role("link", name="Start with lesson 1").click()
    page.wait_for_selector(".st-lesson .st-term")
    term = page.locator(".st-lesson .st-term", has_text="query").first
    assert term.get_attribute("title") == "The vector with which a token asks: what am I looking for?"


def test_the_palette_finds_a_view_by_the_keyboard(go: Go) -> None:
    page = go(f"heads?{CAR}")
    settled(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("beam search")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('h1')?.innerText !== 'Heads'")
    assert page.locator("dialog[open]").count() == 0


def heading(page: Any) -> str:
    return str(page.locator(".ch-large strong").inner_text())


def test_a_change_is_undone_and_a_head_is_handed_on(go: Go) -> None:
    page = go(f"heads?{CAR}")
    settled(page)
    first = heading(page)
    page.get_by_role("gridcell", name="Layer 1, head 4").click()
    assert heading(page) == "Layer 1, head 4" != first
    page.keyboard.press("Control+z")
    until(page, f"document.querySelector('.ch-large strong')?.innerText === '{first}'")
    page.get_by_role("gridcell", name="Layer 1, head 4").click()
    page.get_by_role("link", name="Steps").click()
    until(page, "document.querySelector('.ch-steps .ch-heading')?.innerText.includes('layer 1, head 4')")


def test_again_answers_the_text_that_stands_in_the_field(go: Go) -> None:
    page = go(f"play?{CAR}")
    settled(page)
    page.get_by_label("Text").fill("A dog sees a cat.")
    page.get_by_role("button", name="Answer again").click()
    until(page, "document.querySelector('.ch-heading')?.innerText.includes('dog')")


def test_teacher_mode_hides_controls_and_a_remote_turns_the_lessons(go: Go) -> None:
    page = go("learn?")
    page.get_by_role("link", name="Start with lesson 1").click()
    page.wait_for_selector(".st-lesson")
    page.get_by_role("button", name="Present").click()
    assert not page.locator(".st-nav").is_visible()
    page.keyboard.press("PageDown")
    until(page, "document.querySelector('.st-lesson h2')?.innerText === 'Why divide by √d'")
    page.keyboard.press("Escape")
    assert page.locator(".st-nav").is_visible()


def test_the_class_follows_the_teacher_unless_it_is_frozen(go: Go) -> None:
    page = go("learn?")
    page.get_by_role("link", name="Start with lesson 1").click()
    page.wait_for_selector(".st-lesson")
    page.get_by_role("button", name="Present").click()
    assert "window for the class" in page.locator(".st-keys").inner_text()
    with page.expect_popup() as opening:
        page.keyboard.press("c")
    pupils = opening.value
    title = "document.querySelector('.st-lesson h2')?.innerText === '{}'".format
    until(pupils, title("Query, key and value"))
    assert not pupils.locator(".st-nav").is_visible()
    page.keyboard.press("PageDown")
    until(pupils, title("Why divide by √d"))
    page.keyboard.press("f")
    assert "the class still sees" in page.locator(".st-frozen").inner_text()
    page.keyboard.press("PageDown")
    until(page, title("The mask"))
    page.wait_for_timeout(600)  # longer than the class waits to follow
    assert pupils.evaluate(title("Why divide by √d"))
    page.keyboard.press("f")
    until(pupils, title("The mask"))
    assert page.locator(".st-frozen").count() == 0
    page.keyboard.press("s")
    page.keyboard.press("b")
    assert page.evaluate(
        "['data-spotlight', 'data-blank'].every((name) => document.documentElement.hasAttribute(name))"
    )
    page.keyboard.press("Escape")
    assert page.evaluate("!document.documentElement.matches('[data-present], [data-spotlight], [data-blank]')")
    pupils.close()


def test_a_probable_token_is_deep_blue(go: Go) -> None:
    page = go(f"play?{CAR}")
    settled(page)
    depth = (
        "all => all.map(one => [Number.parseFloat(one.title), getComputedStyle(one).backgroundColor.match(/\\d+/g)[0]])"
    )
    found = [(float(percent), int(red)) for percent, red in page.locator(".st-token").evaluate_all(depth)]
    tokens = sorted(found, key=lambda token: (token[0], -token[1]))  # the same rounded percentage: in any order
    assert tokens[0][0] < tokens[-1][0]
    assert [red for _, red in tokens] == sorted((red for _, red in tokens), reverse=True)
    assert page.locator(".ch-legend").get_attribute("aria-label") == "Colours: weak is 0 %, strong is 100 % likely"
