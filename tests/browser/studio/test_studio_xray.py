"""The X-ray in the Studio: the first page, loaded as it is opened, restored by its link."""

from __future__ import annotations

from typing import Any

from clearhead.serve.registry import Service

from .conftest import Go, settled, until

CAR = "She has a red car."
FILLED = """async ([asked, aspect]) => {
  const { mapOf } = await import("/studio/views/xraymap.js");
  const body = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked) };
  const { root } = mapOf(await (await fetch("/studio/api/xray", body)).json(), aspect);
  return root.w / root.h / aspect;
}"""


def crumbs(page: Any) -> list[str]:
    return list(page.locator(".ch-crumbs button").all_inner_texts())


def test_the_first_page_is_the_model_and_any_number_can_be_reached(go: Go, service: Service) -> None:
    page = go("")
    page.emulate_media(reduced_motion="reduce")
    settled(page)
    assert page.title() == "X-ray · Clearhead Studio"
    for name in ("Decoder", "Block 1", "Cross-attention", "Head 2", "value"):
        page.locator(".ch-links .ch-chip").get_by_text(name, exact=True).first.click()
    page.locator(".ch-stage canvas").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.locator(".ch-value-large").wait_for()
    value = service.models["en-es"].model.look(CAR).attention["decoder.cross"].value[1][2, 0, 0]
    assert float(page.locator(".ch-value-large").get_attribute("data-exact")) == float(value)
    assert page.locator(".ch-terms li").count() == 192  # the weights were fetched
    page.reload()
    settled(page)
    assert crumbs(page)[-3:] == ["value", "“She”", "number 0"]


def test_a_lecture_s_example_is_opened_in_steps(go: Go) -> None:
    page = go("steps?example=Step+by+step%3A+102+and+99")
    settled(page)
    until(page, "document.querySelector('.ch-total')?.innerText === 'Σ 3 of 3 = 102'")
    page.get_by_role("button", name="softmax").click()
    assert page.locator(".ch-bars .ch-number").all_text_contents() == ["0.850", "0.150"]


def test_the_picture_fills_its_window_with_beams_too(go: Go) -> None:
    page = go("learn")
    for asked in ({"text": CAR}, {"text": CAR, "beams": 3}):
        filled = page.evaluate(FILLED, [{"model": "en-es", **asked}, 1.6])
        assert min(filled, 1 / filled) > 0.75
