from __future__ import annotations

from .conftest import Open
from .documents import cells


def test_the_text_is_coloured_by_the_unit(show: Open) -> None:
    page = show("cells", cells())
    assert page.get_by_role("heading").inner_text() == "Unit 17 of decoder, block 1, output"
    assert "follows line position with a correlation of 0.830" in page.locator(".ch-heading p").inner_text()
    letters = page.locator(".ch-text span")
    assert "".join(letters.evaluate_all("all => all.map(one => one.textContent)")) == "To be,\nor not"
    colours = letters.evaluate_all("all => all.map(one => one.style.background)")
    assert colours[0] == "rgb(165, 21, 42)"  # the deepest red: the beginning of a line
    assert colours[3] == "rgb(244, 246, 249)"  # zero: neither
    assert colours[6] == "rgb(15, 85, 165)"  # the deepest blue: its end


def test_a_letter_tells_its_value_to_the_pointer_and_to_the_keys(show: Open) -> None:
    page = show("cells", cells())
    page.locator(".ch-text span").nth(1).hover()
    assert page.get_by_role("status").inner_text() == "o: −0.667"
    page.locator(".ch-text span").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("status").inner_text() == "␣: −0.333"


def test_another_unit_is_chosen_from_the_ranking(show: Open) -> None:
    page = show("cells", cells())
    page.get_by_role("button", name="case").click()
    assert page.get_by_role("heading").inner_text() == "Unit 5 of decoder, block 0, output"
    colours = page.locator(".ch-text span").evaluate_all("all => all.map(one => one.style.background)")
    assert colours[:2] == ["rgb(15, 85, 165)", "rgb(244, 246, 249)"]
    assert page.get_by_role("button", name="case").get_attribute("aria-pressed") == "true"


def test_a_unit_without_values_cannot_be_chosen(show: Open) -> None:
    page = show("cells", cells())
    assert page.get_by_role("button", name="quotes").is_disabled()
