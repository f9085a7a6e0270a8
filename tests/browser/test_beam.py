from __future__ import annotations

from typing import Any

from .conftest import Open
from .documents import beam


def chosen(page: Any) -> str:
    return str(page.locator('[aria-selected="true"] text').text_content())


def chips(page: Any) -> list[str]:
    return list(page.locator(".ch-chip").all_inner_texts())


def test_it_begins_at_the_best_text(show: Open) -> None:
    page = show("beam", beam())
    assert page.locator(".ch-heading p").inner_text() == "7 texts considered: 4 kept, 1 finished, 2 dropped"
    assert page.get_by_role("treeitem").count() == 6
    assert chips(page) == ["el", "coche", "[STOP]"]
    facts = page.locator(".ch-facts dd").all_inner_texts()
    assert facts == ["80 % (log −0.223)", "−1.24", "−0.415"]


def test_the_best_path_is_straight_and_no_two_nodes_meet(show: Open) -> None:
    page = show("beam", beam())
    page.get_by_role("checkbox").check()
    read = "all => all.map(one => ['x', 'y', 'width'].map(name => Number(one.getAttribute(name))))"
    places = page.locator(".ch-node rect").evaluate_all(read)
    best = page.locator(".ch-node.ch-best rect").evaluate_all(read)
    assert len(places) == 8
    assert len({y for _, y, _ in best}) == 1
    for number, (x, y, width) in enumerate(places):
        for other_x, other_y, _ in places[number + 1 :]:
            assert y != other_y or other_x >= x + width or other_x < x


def test_a_click_shows_the_text_and_its_rivals(show: Open) -> None:
    page = show("beam", beam())
    page.get_by_role("treeitem", name="auto").click()
    assert chips(page) == ["la", "auto"]
    assert "kept as a beam" in page.locator(".ch-detail").inner_text()
    rivals = page.locator(".ch-rivals li").evaluate_all("all => all.map(one => one.firstChild.textContent)")
    assert rivals == ["auto", "casa"]


def test_arrow_keys_walk_the_tree(show: Open) -> None:
    page = show("beam", beam())
    page.get_by_role("treeitem", name="[STOP]").focus()
    walked = []
    for key in ("ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp", "Home", "End"):
        page.keyboard.press(key)
        walked.append(chosen(page))
    assert walked == ["coche", "el", "la", "auto", "coche", "[START]", "[STOP]"]


def test_dropped_texts_can_be_shown(show: Open) -> None:
    page = show("beam", beam())
    page.get_by_role("checkbox", name="Show dropped texts").check()
    assert page.get_by_role("treeitem").count() == 8
    page.get_by_role("treeitem", name="un, 10 %, dropped").click()
    assert chips(page) == ["un"]
    page.get_by_role("checkbox").uncheck()
    assert chosen(page) == "[STOP]"  # what cannot be seen cannot be chosen
