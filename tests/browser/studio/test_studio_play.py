"""Play: type, draw or drop an image, watch the answer, and continue from another token."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from clearhead.serve.registry import Service

from .conftest import Go, StudioPage, draw_seven, settled, until

TEXT = "A dog sees a cat."


def answer(page: Any) -> str:
    settled(page)
    return str(page.locator(".st-answer").inner_text()).removesuffix(" ■").strip()


def test_it_translates_an_example(go: Go, service: Service) -> None:
    page = go("play")
    assert answer(page) == service.models["en-es"].model.translate("She has a red car.", beam_width=1)
    assert page.title() == "Play · Clearhead Studio"


def test_type_a_sentence_and_press_enter(go: Go, service: Service) -> None:
    page = go("play")
    page.get_by_label("Text").fill(TEXT)
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.ch-heading')?.innerText.includes('dog')")
    expected = service.models["en-es"].model.translate(TEXT, beam_width=1)
    assert answer(page) == expected
    page.reload()
    assert page.get_by_label("Text").input_value() == TEXT
    assert answer(page) == expected


def test_continue_from_an_alternative_and_restore_it_from_the_link(go: Go) -> None:
    page = go("play?text=She+has+a+red+car.")
    before = answer(page)
    page.locator(".st-token", has_text="coche").click()
    others = page.get_by_role("region", name="Alternatives").get_by_role("button")
    assert others.count() == 8
    assert re.match(r"coche\s+\d+ %", others.first.inner_text())
    others.filter(has_text="auto").first.click()
    until(page, "document.querySelector('.st-answer')?.innerText.includes('auto')")
    after = answer(page)
    assert after.startswith("Ella tiene un auto")
    assert after != before
    page.reload()
    assert answer(page) == after


def test_tokens_can_be_reached_with_the_keyboard(go: Go) -> None:
    page = go("play?text=She+has+a+red+car.")
    settled(page)
    page.locator(".st-token").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    assert page.locator(".st-token[aria-pressed=true]").inner_text().strip() == "tiene"
    assert page.evaluate("document.activeElement.innerText").strip() == "tiene"


def test_a_language_model_streams_and_samples_again(go: Go) -> None:
    page = go("play?model=shakespeare&seed=3")
    page.wait_for_selector(".st-token")
    first = answer(page)
    assert first.startswith("ROMEO:\nBut soft, what light")
    assert page.locator(".st-token").count() == 160
    page.get_by_role("button", name="Answer again").click()
    until(page, "document.querySelectorAll('.st-token').length < 160")
    assert answer(page) != first
    page.reload()
    assert "seed=4" in page.url


def test_draw_a_seven(go: Go) -> None:
    page = go("play?model=digits")
    draw_seven(page)
    page.wait_for_selector(".ch-rivals")
    settled(page)
    assert page.locator(".ch-rivals [aria-current]").inner_text().startswith("7")
    page.reload()
    page.wait_for_selector(".ch-rivals")
    assert page.locator(".ch-rivals [aria-current]").inner_text().startswith("7")


def test_choose_an_image(go: Go, tmp_path: Path) -> None:
    picture = Image.new("L", (60, 60))
    ImageDraw.Draw(picture).line([(30, 10), (30, 50)], fill=255, width=5)
    picture.save(tmp_path / "one.png")
    page = go("play?model=digits")
    page.wait_for_selector(".ch-rivals")  # of the example that the pad opens with
    assert page.locator(".ch-rivals [aria-current]").inner_text().startswith("7")
    page.locator("input[type=file]").set_input_files(tmp_path / "one.png")
    until(page, "document.querySelector('.ch-rivals [aria-current]').innerText.startsWith('1')")


def test_an_error_is_shown_as_one_sentence(go: Go, studio_page: StudioPage) -> None:
    studio_page.ignored = "status of 400"
    page = go("play?text=%20")
    page.wait_for_selector(".st-error:not([hidden])")
    assert page.get_by_role("alert").inner_text() == "the text for en-es is empty: write something"


def test_another_model_is_chosen(go: Go) -> None:
    page = go("play")
    settled(page)
    page.get_by_role("combobox", name="Model").select_option("digits")
    page.wait_for_selector(".st-pad")
    assert "model=digits" in page.url
    page.go_back()
    page.wait_for_selector(".st-answer")


def test_a_prediction_of_any_task_is_shown_with_its_fields(go: Go) -> None:
    page = go("learn?")
    line = '{"prediction": {"sorted": "1 2 <b>3</b>", "steps": 7}}\n'
    page.route("**/studio/api/play", lambda route: route.fulfill(body=line, content_type="application/x-ndjson"))
    page.get_by_role("link", name="Play").click()
    settled(page)
    assert page.locator(".st-tags").inner_text().split("\n") == ["sorted", "1 2 <b>3</b>", "steps", "7"]
    assert "1 2 <b>3</b>" in page.locator(".ch-heading h2").inner_text()
    page.unroute("**/studio/api/play")
