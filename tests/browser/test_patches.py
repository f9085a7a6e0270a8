from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.look.views.rollout import rollout

from .conftest import Open
from .documents import SOURCE, TARGET, attended, image_look, look


def shown(page: Any) -> list[float]:
    """How strong the overlay of each patch is, the strongest as 1."""
    read = "all => all.map(one => Number(one.getAttribute('fill-opacity')))"
    strengths = page.locator(".ch-patch").evaluate_all(read)
    return [strength / max(strengths) for strength in strengths]


def relative(shares: torch.Tensor) -> list[float]:
    return list((shares / shares.max()).tolist())


def test_it_begins_with_the_rollout_of_the_class_token(show: Open) -> None:
    data = image_look()
    layers = torch.tensor(data["attention"]["encoder.self"]["weights"])
    page = show("patches", data)
    assert page.get_by_role("button", name="class token").get_attribute("aria-pressed") == "true"
    assert shown(page) == pytest.approx(relative(rollout(list(layers))[0, 1:]), abs=1e-5)
    assert page.locator(".ch-rivals li").first.inner_text().split() == ["7", "90", "%"]


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
def test_each_layer_has_the_rollout_up_to_it(show: Open, heads: Any) -> None:
    data = image_look()
    layers = torch.tensor(data["attention"]["encoder.self"]["weights"])
    page = show("patches", data)
    page.get_by_role("combobox").select_option(heads)
    page.get_by_role("slider").focus()
    for layer in (2, 1, 0):
        assert shown(page) == pytest.approx(relative(rollout(list(layers[: layer + 1]), heads)[0, 1:]), abs=1e-5)
        page.keyboard.press("ArrowLeft")


def test_a_patch_asks_when_it_is_clicked_or_reached_by_the_keys(show: Open) -> None:
    data = image_look()
    layers = torch.tensor(data["attention"]["encoder.self"]["weights"])
    page = show("patches", data)
    page.get_by_role("radio", name="Attention").check()
    page.get_by_role("button", name="patch in row 0, column 1").click()
    assert shown(page) == pytest.approx(relative(layers[2].mean(0)[2, 1:]), abs=1e-5)
    page.keyboard.press("ArrowDown")
    assert shown(page) == pytest.approx(relative(layers[2].mean(0)[5, 1:]), abs=1e-5)
    assert page.get_by_role("status").inner_text().startswith("The patch in row 1, column 1 looks most at the patch in")


def test_one_head_of_one_layer(show: Open) -> None:
    data = image_look()
    page = show("patches", data)
    page.get_by_role("radio", name="Attention").check()
    page.get_by_role("combobox").select_option("1")
    page.get_by_role("button", name="Layer 0").click()
    own = torch.tensor(data["attention"]["encoder.self"]["weights"][0][1][0][1:])
    assert shown(page) == pytest.approx(relative(own), abs=1e-5)
    assert page.get_by_role("slider").input_value() == "0"


def test_all_tokens_on_average(show: Open) -> None:
    data = image_look()
    page = show("patches", data)
    page.get_by_role("radio", name="Attention").check()
    page.get_by_role("button", name="all, on average").click()
    own = torch.tensor(data["attention"]["encoder.self"]["weights"][2]).mean((0, 1))[1:]
    assert shown(page) == pytest.approx(relative(own), abs=1e-5)
    assert page.get_by_role("status").inner_text().startswith("On average a token looks most at the patch")


def test_the_image_has_its_own_pixels(show: Open) -> None:
    page = show("patches", image_look())
    read = """async one => {
      const image = new Image();
      image.src = one.getAttribute("href");
      await image.decode();
      const canvas = new OffscreenCanvas(image.width, image.height);
      canvas.getContext("2d").drawImage(image, 0, 0);
      const pixels = [...canvas.getContext("2d").getImageData(0, 0, image.width, image.height).data];
      return pixels.filter((_, place) => place % 4 === 0);
    }"""
    assert page.locator(".ch-surface image").evaluate(read) == [40 * y + 10 * x for y in range(4) for x in range(6)]


def test_words_that_ask_about_an_image(show: Open) -> None:
    patches = [f"{row},{column}" for row in (1, 2) for column in (1, 2, 3)]
    data = {**image_look(), "attention": {"decoder.cross": attended(["a", "seven"], patches)}, "class_token": False}
    page = show("patches", data)
    page.get_by_role("button", name="seven").click()
    own = torch.tensor(data["attention"]["decoder.cross"]["weights"][1]).mean(0)[1]
    assert shown(page) == pytest.approx(relative(own), abs=1e-5)
    assert page.get_by_role("status").inner_text().startswith("“seven” looks most at the patch in row")


def test_a_text_is_coloured_word_by_word(show: Open) -> None:
    data = look()
    page = show("patches", data)
    assert page.locator(".ch-read .ch-word").all_inner_texts() == SOURCE
    assert page.locator(".ch-beside .ch-word").all_inner_texts() == [*TARGET, "all, on average"]
    page.get_by_role("button", name="coche").click()
    row = torch.tensor(data["attention"]["decoder.cross"]["weights"][1]).mean(0)[1]
    best = int(row.argmax())
    told = f"“coche” looks most at “{SOURCE[best]}”: {100 * row[best]:.0f} %"
    assert page.get_by_role("status").inner_text() == told
    page.get_by_role("radio", name="Encoder").check()
    page.get_by_role("radio", name="Rollout").check()
    page.locator(".ch-read .ch-word").nth(2).click()
    assert page.get_by_role("status").inner_text().startswith("“car” looks most at")
