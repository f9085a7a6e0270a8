"""Change it and see: dragged and typed, by pointer and by keys, beside the original, and restored by the link."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from .conftest import Go, settled, until
from .test_studio_everywhere import NARROW, serious

CAR = "She has a red car."
HEAD = "decoder, block 1, cross-attention, head 2"
WEIGHTS = {"node": "decoder.1.cross.weights#2", "row": 3, "column": None}


def link(view: str, **state: Any) -> str:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in state.items()}
    return f"{view}?{'&'.join(f'{name}={quote(value)}' for name, value in texts.items())}"


def compared(page: Any) -> None:
    """Wait until both answers are there."""
    page.locator(".ch-changes").wait_for()
    until(page, "document.querySelector('.ch-answers')?.innerText.includes('…') === false")


def slider(page: Any, key: int) -> Any:
    return page.locator(f'.ch-weights [data-keep="weight {key}"]')


def test_a_weight_by_its_slider_in_the_picture_and_back(go: Go) -> None:
    page = go(link("xray", model="en-es", text=CAR, at=WEIGHTS))
    page.emulate_media(reduced_motion="reduce")
    settled(page)
    slider(page, 0).press("End")
    compared(page)
    assert page.locator(".ch-changes li").inner_text().startswith(f"{HEAD}: “un” → “She” 100 %")
    assert slider(page, 0).input_value() == "1"
    assert float(slider(page, 3).input_value()) == 0
    assert page.evaluate("document.activeElement.dataset.keep") == "weight 0"  # the keyboard goes on
    assert page.locator(".ch-panes").inner_text().split() == ["Original", "Changed"]
    assert serious(page) == []
    page.get_by_role("radio", name="Difference").check()
    assert page.locator(".ch-panes").inner_text() == "Changed minus original"
    page.reload()
    settled(page)
    compared(page)
    assert page.get_by_role("radio", name="Difference").is_checked()
    page.get_by_role("radio", name="Changed", exact=True).check()
    box = page.locator(".ch-stage canvas").bounding_box()  # the row fills the width: its last cell is dragged up
    x, y = box["x"] + 0.93 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 110, steps=4)
    page.mouse.up()
    until(page, "document.querySelectorAll('.ch-changes li').length === 2")
    compared(page)
    assert page.locator(".ch-changes li").nth(1).inner_text().startswith(f"{HEAD}: “un” → ")
    page.get_by_role("button", name="Take all back").click()
    until(page, "!document.querySelector('.ch-changes')")
    assert "changes" not in page.url
    page.keyboard.press("Control+z")
    compared(page)
    assert page.locator(".ch-changes li").count() == 2


def test_a_word_a_head_and_the_temperature(go: Go) -> None:
    page = go(link("xray", model="en-es", text=CAR, at={"node": "encoder.embedded", "row": 3, "column": None}))
    settled(page)
    page.get_by_label("Another word").fill("blue")
    page.keyboard.press("Enter")
    compared(page)
    assert page.locator(".ch-answers p").nth(1).inner_text().endswith("coche azul.")
    assert page.locator(".ch-answers mark").inner_text() == "azul."
    page.get_by_label("Read the changed answer").check()
    until(page, "location.hash.includes('follow=yes')")
    settled(page)
    compared(page)
    page.get_by_role("button", name="The whole model").click()
    for name in ("Output", "Output: probability"):
        page.locator(".ch-links .ch-chip").get_by_text(name, exact=True).first.click()
    page.get_by_label("Temperature").press("End")
    until(page, "document.querySelectorAll('.ch-changes li').length === 2")
    compared(page)
    page.get_by_role("button", name="Draw again").click()
    until(page, "decodeURIComponent(location.hash).includes('\"seed\":1')")
    compared(page)
    page.get_by_role("button", name="Take this change back").first.click()
    until(page, "document.querySelectorAll('.ch-changes li').length === 1")


def test_beams_branch_as_the_tokens_come(go: Go) -> None:
    page = go(link("xray", model="en-es", text=CAR, beams="3"))
    page.emulate_media(reduced_motion="reduce")
    settled(page)
    page.locator(".ch-links .ch-chip").get_by_text("Beam search", exact=True).click()
    assert page.locator(".ch-beams li").count() >= 1
    canvas = page.locator(".ch-stage canvas")
    page.get_by_role("button", name="Next token").click()
    page.get_by_role("button", name="Next token").click()
    assert page.locator(".ch-beams .ch-part-label").inner_text().startswith("Beams after 1 token;")
    assert page.locator(".ch-beams li").count() == 3
    assert "cache: 2 of" in page.locator(".ch-dataflow").inner_text()
    canvas.press("Enter")
    canvas.press("ArrowRight")
    assert "Probability of this token" in page.locator(".ch-facts").inner_text()
    page.get_by_role("button", name="X-ray of this text").click()
    until(page, "location.hash.includes('target=')")
    settled(page)


def test_steps_follow_a_dragged_weight(go: Go) -> None:
    page = go(link("steps", model="en-es", text=CAR, kind="decoder.cross", layer="1", head="2", query="3", step="2"))
    settled(page)
    page.get_by_text("Change it and see").first.click()
    slider(page, 0).press("End")
    compared(page)
    page.get_by_role("button", name="softmax").click()
    assert page.locator(".ch-bars").first.locator(".ch-number").first.text_content() == "1.00"
    assert page.get_by_text("In the original").is_visible()
    page.reload()
    settled(page)
    compared(page)


def test_a_vector_is_dragged_into_another_sentence(go: Go) -> None:
    page = go(link("what-if", model="en-es", tab="patch", text=CAR, donor="She has a blue car."))
    settled(page)

    def cell(side: str, state: str, token: int) -> Any:
        return page.locator(f'[data-side="{side}"][data-state="{state}"][data-token="{token}"]')

    cell("donor", "encoder.embedded", 3).drag_to(cell("own", "encoder.embedded", 3))
    until(page, "document.querySelector('.ch-changes')?.innerText.includes('azul')")
    assert page.locator(".st-flipped").count() >= 1
    assert serious(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(NARROW)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.reload()
    settled(page)
    until(page, "document.querySelector('.ch-changes')?.innerText.includes('azul')")
    page.get_by_role("button", name="Take all back").click()
    until(page, "!document.querySelector('.st-patched')")
    cell("donor", "encoder.embedded", 3).focus()  # the same without a pointer
    page.keyboard.press("Enter")
    cell("own", "encoder.embedded", 3).focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.ch-changes')?.innerText.includes('azul')")
    page.get_by_role("link", name="See it in the X-ray").click()
    settled(page)
    compared(page)
    assert "azul" in page.locator(".ch-answers").inner_text()


def test_the_loss_on_held_out_data_is_measured_and_cancelled(go: Go) -> None:
    page = go(link("what-if", model="en-es", tab="data"))
    page.locator(".st-hint", has_text="The loss of the whole model is").wait_for(timeout=60_000)
    assert page.locator(".st-losses li").count() >= 4  # every block, without a click
    assert page.locator(".st-losses [title='decoder.0']").inner_text() == "decoder, block 0"
    page.get_by_label("Batches").press("End")
    page.get_by_role("button", name="Measure").click()
    page.get_by_role("button", name="Cancel").click()
    until(page, "document.querySelector('.st-hint')?.innerText === 'Cancelled.'")
