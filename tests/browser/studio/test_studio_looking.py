"""The views that look inside a model, each used by mouse and keyboard and restored by its link."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .conftest import Go, StudioPage, draw_seven, settled, until

CAR = "text=She+has+a+red+car."


def status(page: Any) -> str:
    return str(page.locator(".ch-readout").first.inner_text())


def menu(page: Any, name: str) -> Any:
    """A list that is opened by a click."""
    return page.locator(".ch-menu", has=page.get_by_text(name, exact=True)).locator("select")


def link(view: str, **state: str) -> str:
    return f"{view}?{'&'.join(f'{name}={quote(value)}' for name, value in state.items())}"


def again(page: Any) -> None:
    """Open the same link anew."""
    page.reload()
    settled(page)


def test_heads_all_kinds_one_large_and_token_by_token(go: Go) -> None:
    page = go(f"heads?{CAR}")
    settled(page)
    page.get_by_role("gridcell", name="Layer 1, head 2").click()
    assert page.locator(".ch-large strong").inner_text() == "Layer 1, head 2"
    page.get_by_role("button", name="Token after").click()
    assert status(page).startswith("Ella looks at")
    for _ in range(3):
        page.get_by_role("button", name="Token after").click()
    assert status(page).startswith("coche looks at car")
    again(page)
    assert page.locator(".ch-large strong").inner_text() == "Layer 1, head 2"
    assert status(page).startswith("coche looks at car")
    page.locator(".ch-lines .ch-token").first.hover()
    assert status(page).startswith("Ella looks at")
    page.get_by_role("radio", name="Encoder").check()
    page.get_by_role("radio", name="Matrix").check()
    assert page.locator(".ch-matrix").is_visible()


def test_heads_of_a_language_model_while_it_generates(go: Go) -> None:
    page = go(link("heads", model="shakespeare", text="ROMEO:"))
    settled(page)
    assert "6 queries × 6 keys" in page.locator(".ch-heading").inner_text()
    page.get_by_label("While it generates").check()
    until(page, "document.querySelector('.ch-heading')?.innerText.includes('29 queries')")
    assert "each word sees only what came before" in page.locator(".ch-heading").inner_text()


def test_steps_of_another_head_and_query(go: Go) -> None:
    page = go(f"steps?{CAR}&layer=1&head=2&query=3&kind=decoder.cross")
    settled(page)
    assert "“coche”" in page.locator(".ch-heading").inner_text()
    page.get_by_role("button", name="softmax").click()
    assert page.locator(".ch-step h3").inner_text().lower() == "softmax"
    menu(page, "Head").select_option("4")
    until(page, "document.querySelector('.ch-heading')?.innerText.includes('head 4')")
    again(page)
    assert "layer 1, head 4, query 3" in page.locator(".ch-heading").inner_text()
    assert page.locator(".ch-step h3").inner_text().lower() == "softmax"
    assert "nn/attention.py" in page.locator(".ch-source").inner_text()


def test_beam_and_the_attention_of_a_node(go: Go) -> None:
    page = go(f"beam?{CAR}&beams=3")
    page.wait_for_selector(".ch-heads .ch-heading h2")
    settled(page)
    page.locator(".ch-node", has_text="auto").first.click()
    until(page, "document.querySelector('.ch-heads .ch-heading')?.innerText.includes('auto')")
    assert page.locator(".ch-chips").first.inner_text().replace("\n", " ").endswith("auto")
    again(page)
    until(page, "document.querySelector('.ch-heads .ch-heading')?.innerText.includes('auto')")
    page.get_by_label("Beams").press("ArrowRight")
    until(page, "location.hash.includes('beams=4')")
    settled(page)


def test_image_as_it_is_drawn(go: Go) -> None:
    page = go("image")
    assert "Draw a digit" in page.locator(".st-hint").inner_text()
    page.wait_for_selector(".st-tile")
    assert page.locator(".st-tile").count() == 16
    draw_seven(page)
    until(page, "document.querySelector('.ch-patches .ch-rivals [aria-current]')?.innerText.startsWith('7')")
    settled(page)
    page.get_by_role("button", name="Layer 0").click()
    assert status(page).startswith("The class token looks most at")
    again(page)
    until(page, "document.querySelector('.ch-patches .ch-rivals [aria-current]')?.innerText.startsWith('7')")
    assert page.get_by_role("button", name="Layer 0").get_attribute("aria-pressed") == "true"
    page.locator(".ch-patch").nth(8).hover()
    assert status(page).startswith("The patch in row 1, column 1 gets")


def test_what_if_without_positions(go: Go) -> None:
    page = go(link("what-if", text="A dog sees a cat."))
    settled(page)
    outputs = page.locator(".st-output")
    assert outputs.all_inner_texts() == ["Un perro ve un gato."] * 2
    page.get_by_role("checkbox", name="Positions").check()
    until(page, "document.querySelectorAll('.st-output')[1]?.innerText === 'Un gato ve un perro.'")
    before, after = map(float, page.locator(".st-loss").all_inner_texts())
    assert after > before
    again(page)
    assert outputs.all_inner_texts() == ["Un perro ve un gato.", "Un gato ve un perro."]
    assert page.get_by_role("checkbox", name="Positions").is_checked()
    page.get_by_role("button", name="Switch all on").click()
    page.locator(".st-suggestions .ch-button", has_text="decoder, block 0").wait_for()
    until(page, "document.querySelectorAll('.st-output')[1]?.innerText === 'Un perro ve un gato.'")
    head = "decoder, block 1, cross-attention, head 2"
    page.get_by_role("checkbox", name=head).check()
    page.get_by_role("checkbox", name="encoder, block 1", exact=True).check()
    until(page, f"document.querySelector('.ch-what-if')?.innerText.includes('{head}')")


def test_word_map_neighbours_and_analogies(go: Go, studio_page: StudioPage) -> None:
    page = go(link("words", words="river, bread"))
    page.wait_for_selector(".ch-analogy .ch-rivals")
    settled(page)
    near = page.locator(".ch-word-map .ch-part-label")
    assert near.inner_text() == "Nearest to river by cosine"
    page.locator(".st-map .st-query", has_text="bread").click()
    assert near.inner_text() == "Nearest to bread by cosine"
    for name, word in zip("abc", ("brother", "boy", "girl"), strict=True):
        page.get_by_label(f"Word {name}").fill(word)
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.ch-analogy h2')?.innerText.includes('sister')")
    again(page)
    until(page, "document.querySelector('.ch-analogy h2')?.innerText.includes('sister')")
    assert near.inner_text() == "Nearest to bread by cosine"
    studio_page.ignored = "status of 400"
    page.get_by_label("Words", exact=True).fill("nonesuch")
    page.keyboard.press("Enter")
    page.wait_for_selector(".st-error:not([hidden])")
    assert "'nonesuch' is not among the" in page.get_by_role("alert").first.inner_text()


def test_positions_follow_base_and_width(go: Go, tmp_path: Path) -> None:
    page = go("positions?base=100&width=16&length=32")
    settled(page)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as JSON").click()
    waiting.value.save_as(tmp_path / "positions.json")
    vectors = json.loads((tmp_path / "positions.json").read_text())["vectors"]
    assert (len(vectors), len(vectors[0])) == (32, 16)
    assert math.isclose(vectors[5][2], math.sin(5 / 100 ** (2 / 16)), abs_tol=1e-4)
    page.get_by_label("Base N").press("ArrowRight")
    until(page, "document.querySelector('.ch-heading')?.innerText.includes('200')")
    page.locator(".ch-heatmap").hover(position={"x": 3, "y": 3})
    assert status(page) == "row 0, column 0: 0"
    again(page)
    assert "200" in page.locator(".ch-heading").inner_text()
    menu(page, "Positions").select_option("digits")
    until(page, "document.querySelector('.ch-heading')?.innerText.includes('learned positions of digits')")


def test_cells_by_what_they_follow(go: Go) -> None:
    page = go("cells")
    settled(page)
    heading = page.locator(".ch-heading")
    first = heading.inner_text()
    page.locator(".ch-ranking button").nth(2).click()
    until(page, f"document.querySelector('.ch-heading')?.innerText !== {json.dumps(first)}")
    menu(page, "Units that follow").select_option("line position")
    until(page, "document.querySelector('.ch-heading')?.innerText.includes('follows line position')")
    again(page)
    assert "follows line position" in heading.inner_text()
    assert set(page.locator(".ch-feature").all_inner_texts()) == {"line position"}
    page.locator(".ch-text span").nth(4).hover()
    assert status(page).startswith("N: ")
