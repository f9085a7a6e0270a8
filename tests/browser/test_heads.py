from __future__ import annotations

import statistics
from typing import Any

from .conftest import Open
from .documents import HEADS, LAYERS, SOURCE, TARGET, long_look, look


def kept_lines(page: Any) -> int:
    """How many lines can be seen."""
    script = "lines => lines.filter(line => getComputedStyle(line).visibility === 'visible').length"
    return int(page.locator(".ch-lines path").evaluate_all(script))


def readout(page: Any) -> str:
    return str(page.get_by_role("status").inner_text())


def test_it_shows_every_head_and_the_words_of_one(show: Open) -> None:
    page = show("heads", look())
    assert page.get_by_role("heading").inner_text() == "the red car → el coche rojo"
    assert page.get_by_role("gridcell").count() == LAYERS * HEADS
    assert page.locator(".ch-token text:first-of-type").all_text_contents() == TARGET + SOURCE
    assert page.locator(".ch-large strong").inner_text() == "Layer 1, head 0"


def test_a_word_under_the_pointer_has_only_its_own_lines(show: Open) -> None:
    data = look()
    row = data["attention"]["decoder.cross"]["weights"][1][0][2]
    page = show("heads", data)
    assert kept_lines(page) > len(SOURCE)
    page.get_by_role("button", name="to be written: rojo").hover()
    assert kept_lines(page) == sum(weight >= 0.01 for weight in row)
    best = max(range(len(SOURCE)), key=row.__getitem__)
    assert readout(page).startswith(f"rojo looks at {SOURCE[best]} {row[best]:.3f}")
    amounts = [f"{weight:.2f}" for weight in row if weight >= 0.05]
    assert [text for text in page.locator(".ch-amount").all_text_contents() if text] == amounts
    page.get_by_role("heading").hover()
    assert kept_lines(page) > len(SOURCE)


def test_a_word_that_is_looked_at_shows_who_looks(show: Open) -> None:
    data = look()
    column = [row[1] for row in data["attention"]["decoder.cross"]["weights"][1][0]]
    page = show("heads", data)
    page.get_by_role("button", name="is looked at: red").hover()
    assert kept_lines(page) == sum(weight >= 0.01 for weight in column)
    best = max(range(len(TARGET)), key=column.__getitem__)
    assert readout(page).startswith(f"red is looked at by {TARGET[best]} {column[best]:.3f}")


def test_a_click_keeps_the_lines_and_another_lets_them_go(show: Open) -> None:
    page = show("heads", look())
    everything = kept_lines(page)
    word = page.get_by_role("button", name="to be written: el")
    word.click()
    page.get_by_role("heading").hover()
    assert kept_lines(page) < everything
    assert word.get_attribute("aria-pressed") == "true"
    word.click()
    page.get_by_role("heading").hover()
    assert kept_lines(page) == everything


def test_a_small_one_is_picked_by_click_and_by_arrow_keys(show: Open) -> None:
    page = show("heads", look())
    page.get_by_role("gridcell", name="Layer 0, head 1").click()
    assert page.locator(".ch-large strong").inner_text() == "Layer 0, head 1"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.locator(".ch-large strong").inner_text() == "Layer 1, head 2"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 1, head 2"
    page.keyboard.press("ArrowRight")  # there is no head further on
    assert page.locator(".ch-large strong").inner_text() == "Layer 1, head 2"


def test_words_are_reached_by_the_keyboard(show: Open) -> None:
    page = show("heads", look())
    page.get_by_role("button", name="to be written: el").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "is looked at: red"
    assert readout(page).startswith("red is looked at by")


def test_a_command_to_the_browser_is_left_to_it(show: Open) -> None:
    page = show("heads", look())
    page.get_by_role("gridcell", name="Layer 0, head 1").click()
    page.evaluate("window.addEventListener('keydown', event => { window.stopped = event.defaultPrevented; })")
    page.keyboard.press("Alt+ArrowDown")
    assert page.locator(".ch-large strong").inner_text() == "Layer 0, head 1"
    assert page.evaluate("window.stopped") is False


def test_words_are_pinned_and_let_go_by_the_keyboard(show: Open) -> None:
    page = show("heads", look())
    everything = kept_lines(page)
    page.get_by_role("button", name="to be written: el").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save as SVG").focus()
    assert kept_lines(page) < everything
    page.get_by_role("button", name="to be written: el").focus()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Save as SVG").focus()
    assert kept_lines(page) == everything


def test_the_kinds_are_switched(show: Open) -> None:
    page = show("heads", look())
    page.get_by_role("radio", name="Decoder").check()
    assert page.locator(".ch-token text:first-of-type").all_text_contents() == TARGET + TARGET
    assert "each word sees only what came before" in page.locator(".ch-heading p").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".ch-token text:first-of-type").all_text_contents() == SOURCE + SOURCE


def test_the_matrix_has_a_cell_for_what_may_be_seen_and_tells_its_weight(show: Open) -> None:
    data = look()
    page = show("heads", data)
    page.get_by_role("radio", name="Decoder").check()
    page.get_by_role("radio", name="Matrix").check()
    assert page.locator(".ch-matrix g rect").count() == 6  # of 3 × 3, half is in the future
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    weight = data["attention"]["decoder.self"]["weights"][1][0][2][1]
    assert readout(page) == f"rojo → coche: {weight:.3f}"
    page.locator(".ch-matrix g rect").first.hover()
    assert readout(page) == "el → el: 1.00"


def test_small_ones_have_a_pixel_for_each_weight(show: Open) -> None:
    page = show("heads", look())
    sizes = page.locator(".ch-grid canvas").evaluate_all("all => all.map(one => [one.width, one.height])")
    assert sizes == [[len(SOURCE), len(TARGET)]] * (LAYERS * HEADS)
    read = "one => [...one.getContext('2d').getImageData(0, 0, 3, 3).data].filter((_, place) => place % 4 === 3)"
    page.get_by_role("radio", name="Decoder").check()
    alphas = page.locator(".ch-grid canvas").first.evaluate(read)
    assert alphas == [255, 0, 0, 255, 255, 0, 255, 255, 255]  # what comes later stays clear


def test_it_is_quick_with_64_words_and_48_heads(show: Open) -> None:
    page = show("heads", long_look())
    assert page.get_by_role("gridcell").count() == 48
    page.get_by_role("radio", name="Matrix").check()
    pick = """cells => cells.filter((_, place) => place % 5 === 0).map(cell => {
      const begun = performance.now();
      cell.click();
      document.body.getBoundingClientRect();
      return performance.now() - begun;
    })"""
    milliseconds = page.get_by_role("gridcell").evaluate_all(pick)
    assert len(milliseconds) == 10
    assert statistics.median(milliseconds) < 300  # 50 on a laptop; this machine may have other work


def test_many_layers_are_shown_in_groups_or_all_at_once(show: Open) -> None:
    page = show("heads", long_look(tokens=6, layers=30, heads=3))
    shown = page.get_by_role("gridcell")
    assert shown.count() == 6 * 3  # the group with the last layer
    assert page.get_by_role("gridcell", selected=True).get_attribute("aria-label") == "Layer 29, head 0"
    page.get_by_role("radio", name="6–11").check()
    assert shown.first.get_attribute("aria-label") == "Layer 6, head 0"
    assert page.locator(".ch-large strong").inner_text() == "Layer 6, head 0"
    page.get_by_role("radio", name="All").check()
    assert shown.count() == 30 * 3
    grid = page.locator(".ch-grid").bounding_box()
    assert grid["width"] > 2 * grid["height"]  # layers run across, where there is room
    page.get_by_role("gridcell", name="Layer 20, head 1").click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.locator(".ch-large strong").inner_text() == "Layer 21, head 2"
