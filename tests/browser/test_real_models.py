"""What real models give is what the views read."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import clearhead
from clearhead.look.units import rank_units, windows
from clearhead.look.views.cells import cells

from .conftest import Open

TEXT = "First Citizen:\nBefore we proceed any further, hear me speak."


@cache
def translated() -> Any:
    return clearhead.load("en-es").look("the red car")


def test_the_heads_of_a_translation(show: Open) -> None:
    page = show("heads", translated().to_json())
    assert page.get_by_role("heading").inner_text() == f"the red car → {translated().output}"
    kinds = page.get_by_role("radiogroup", name="Attention").get_by_role("radio")
    assert kinds.count() == 3
    attended = translated().attention["decoder.cross"]
    assert page.locator(".ch-token text:first-of-type").all_text_contents() == attended.rows + attended.columns


def test_the_steps_of_one_word(show: Open) -> None:
    page = show("steps", translated().steps(layer=0, head=0, query=1, kind="decoder.self").to_json())
    page.get_by_role("button", name="mask").click()
    numbers = page.locator(".ch-bars .ch-number").all_text_contents()
    assert numbers[2:] == ["−∞"] * (len(numbers) - 2)
    page.keyboard.press("End")
    assert page.locator(".ch-step h3").inner_text() == "Add & norm"
    assert page.locator(".ch-vectors rect").count() == 192


def test_the_beams_of_a_translation(show: Open) -> None:
    tree = clearhead.load("en-es").beam_tree("the red car", 3)
    page = show("beam", tree.to_json())
    assert page.locator(".ch-chip").all_inner_texts() == [node.token for node in tree.path(tree.best)]
    page.get_by_role("checkbox").check()
    assert page.get_by_role("treeitem").count() == len(tree.nodes)


def test_the_patches_of_an_image(show: Open) -> None:
    image = np.zeros((28, 28), dtype=np.uint8)
    image[4:24, 13:16] = 255
    look = clearhead.load("digits").look(image)
    page = show("patches", look.to_json())
    assert page.locator(".ch-patch").count() == 49
    assert page.locator(".ch-thumb").count() == look.attention["encoder.self"].layers
    assert page.locator(".ch-rivals li").first.inner_text().split()[0] == look.output


def test_the_units_of_a_language_model(show: Open) -> None:
    model = clearhead.load("shakespeare")
    ids = model.tokenizer.encode(TEXT)
    layer = "decoder.1.hidden"
    ranking = rank_units(model.network, windows(ids, list(TEXT), length=len(ids)), [layer], count=2)
    [(inputs, _)] = windows(ids, list(TEXT), length=len(ids))
    page = show("cells", cells(model.network, inputs, list(TEXT), layer, ranking[0].unit, ranking).to_json())
    assert page.get_by_role("heading").inner_text() == f"Unit {ranking[0].unit} of decoder, block 1, output"
    assert page.locator(".ch-text span").count() == len(TEXT)
    assert page.locator(".ch-ranking button").count() == len(ranking)
