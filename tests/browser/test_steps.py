from __future__ import annotations

from typing import Any

from .conftest import Open
from .documents import SOURCE, steps


def present(page: Any) -> str:
    return str(page.locator(".ch-step h3").inner_text())


def test_a_step_has_its_equation_its_numbers_and_its_line(show: Open) -> None:
    page = show("steps", steps())
    assert page.get_by_role("heading", level=2).inner_text() == "“coche”, step by step"
    assert present(page) == "Score"
    assert page.locator(".ch-equation").inner_text().replace("\n", "") == "sj = q · kj"
    assert page.locator(".ch-bars .ch-number").all_text_contents() == ["12.0", "−6.00", "1.00", "8.00", "36.0"]
    assert page.locator(".ch-source p").inner_text() == "nn/attention.py:41"
    assert page.locator(".ch-source code").inner_text().strip() == "return line_0"


def test_it_goes_forward_and_back_by_buttons_keys_and_names(show: Open) -> None:
    page = show("steps", steps())
    assert page.get_by_role("button", name="Step back").is_disabled()
    page.get_by_role("button", name="Step forward").click()
    assert present(page) == "Scale"
    page.keyboard.press("ArrowRight")
    assert present(page) == "Mask"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    assert present(page) == "Score"
    page.keyboard.press("End")
    assert present(page) == "Sum"
    page.get_by_role("button", name="softmax").click()
    assert present(page) == "Softmax"
    assert page.locator('[aria-current="step"]').inner_text() == "softmax"


def test_it_plays_by_itself_until_it_is_stopped(show_later: Open) -> None:
    page = show_later("steps", steps())
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(1700)
    assert present(page) == "Scale"
    page.clock.run_for(1700)
    assert present(page) == "Mask"
    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(5000)
    assert present(page) == "Mask"
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(20000)
    assert present(page) == "Sum"
    assert page.get_by_role("button", name="Play").is_visible()


def test_what_is_masked_is_minus_infinity_and_has_no_bar(show: Open) -> None:
    page = show("steps", steps())
    page.get_by_role("button", name="mask").click()
    assert page.locator(".ch-bars .ch-number").all_text_contents()[-1] == "−∞"
    widths = page.locator(".ch-bars rect").evaluate_all("all => all.map(one => Number(one.getAttribute('width')))")
    assert widths[-1] == 0
    assert widths[0] > 0


def test_scaling_makes_the_bars_shorter(show: Open) -> None:
    page = show("steps", steps())
    width = "one => Number(one.getAttribute('width'))"
    before = page.locator(".ch-bars rect").first.evaluate(width)
    page.get_by_role("button", name="scale").click()
    after = page.locator(".ch-bars rect").first.evaluate(width)
    assert abs(after - before / 4) < 0.01


def test_all_numbers_can_be_read_in_a_table(show: Open) -> None:
    page = show("steps", steps())
    page.get_by_role("button", name="weight").click()
    page.get_by_text("All numbers").click()
    rows = page.locator(".ch-table tr").evaluate_all("all => all.map(row => row.innerText.split('\\t'))")
    assert [row[0] for row in rows] == SOURCE
    assert rows[0][1:] == ["−2.80", "−2.10"]


def test_a_number_under_the_pointer_is_told(show: Open) -> None:
    page = show("steps", steps())
    page.get_by_role("button", name="weight").click()
    page.locator(".ch-vectors rect").nth(1).hover()
    assert page.get_by_role("status").inner_text() == "the, entry 1: −2.10"
