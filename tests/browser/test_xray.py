"""The X-ray in a browser: zoom by pointer and keys, every number followed back, the data as it flows."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

import clearhead
from clearhead.look.views.xray import XRay

from . import documents
from .conftest import Open
from .test_every_view import served

EXPLAIN = """async ([data, addresses, rows = null]) => {
  const { explain, numbersOf, total } = await import("https://views.test/xraynumbers.js");
  const numbers = numbersOf(data, rows && (async ({ part, row }) => rows[`${part} ${row}`]));
  return Promise.all(addresses.map(async (address) => {
    const made = await explain(numbers, address);
    const last = made.after.length ? made.after.at(-1).value : made.terms ? total(made.terms) : null;
    return { value: made.value, terms: made.terms && made.terms.length, sum: made.terms && total(made.terms), last };
  }));
}"""


def addresses(xray: XRay, count: int = 4) -> list[dict[str, Any]]:
    """Some numbers of every part, the first and the last among them."""
    drawn, found = random.Random(1), []
    for part in xray.graph.parts.values():
        heads, (rows, columns) = part.heads or 1, part.value.shape[-2:]
        places = [(0, 0, 0), (heads - 1, rows - 1, columns - 1)]
        places += [(drawn.randrange(heads), drawn.randrange(rows), drawn.randrange(columns)) for _ in range(count - 2)]
        found += [{"part": part.id, "head": head, "row": row, "column": column} for head, row, column in places]
    return found


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("translate", {"positions": "rotary", "feed_forward": "swiglu"}),
        ("translate", {"positions": "sinusoidal", "placement": "after", "feed_forward": "gelu", "kv_heads": 1}),
        ("translate", {"architecture": "rnn", "cell": "lstm"}),
        ("translate", {"architecture": "rnn", "cell": "gru"}),
        ("lm", {"positions": "alibi", "norm": "rms", "parallel": True, "feed_forward": "gelu_tanh"}),
        ("classify", {"pool": "mean"}),
    ],
    ids=str,
)
def test_every_number_is_the_look_s_and_the_sum_of_its_terms(page: Any, task: str, settings: dict[str, Any]) -> None:
    served(page)
    xray = documents.small_xray(task, **settings)
    asked = addresses(xray)
    known = 0
    for address, found in zip(asked, page.evaluate(EXPLAIN, [xray.to_json(), asked]), strict=True):
        part = xray.graph.parts[address["part"]]
        value = part.value if part.heads else part.value[None]
        assert found["value"] == float(value[address["head"], address["row"], address["column"]])
        if found["last"] is not None:
            assert found["last"] == pytest.approx(found["value"], rel=1e-4, abs=1e-5), address
            known += 1
    assert known > 0.8 * len(asked)


BUNDLED: dict[str, Any] = {
    "en-es": "She has a red car.",
    "en-de": "She has a red car.",
    "shakespeare": "ROMEO:\nBut soft",
    "shakespeare-lstm": "ROMEO:\nBut",
    "invented": "zog plim zog quav",
    "digits": np.eye(28, dtype=np.uint8)[..., None] * 255,
}
WITHOUT = {"lookup", "given"}  # a row of a table, a vector of a place: nothing is computed


@pytest.mark.parametrize("name", BUNDLED)
def test_every_number_of_a_bundled_model_can_be_followed(page: Any, name: str) -> None:
    """At every level of the model: what the page adds up is what the look has."""
    served(page)
    xray: Any = clearhead.load(name).view("xray", BUNDLED[name])
    parts, asked = xray.graph.parts, addresses(xray, 3)
    data = xray.to_json()
    rows: dict[str, list[str]] = {}
    for at in asked if "weights" not in data else []:
        part = parts[at["part"]]
        if part.op == "linear":
            group = at["head"] // part.details.get("group", 1)
            row = group * part.details["size"] + at["column"] if part.heads else at["column"]
            rows[f"{part.id} {row}"] = xray.weight_row(part.id, row)
        elif part.op == "logits":
            row = part.details["ids"][at["row"]][at["column"]]
            rows[f"{part.id} {row}"] = xray.weight_row(part.id, row)
    for at, found in zip(asked, page.evaluate(EXPLAIN, [data, asked, rows or None]), strict=True):
        part = parts[at["part"]]
        value = part.value if part.heads else part.value[None]
        assert found["value"] == float(value[at["head"], at["row"], at["column"]])
        if part.op in WITHOUT:
            continue
        assert found["last"] == pytest.approx(found["value"], rel=1e-3, abs=2e-4), at


TARGETS = """async ([data, consumers]) => {
  const { sources, targets } = await import("https://views.test/xraynumbers.js");
  const lost = [];
  const covers = (all, { part, head, row, column }) => all.some((each) => each.part === part && each.head === head
    && (each.row === null || each.row === row) && (each.column === null || each.column === column));
  for (const [to, from] of consumers) {
    const { shape } = data.parts[to];
    const [height, width] = shape.slice(-2);
    const at = { part: to, head: shape.length === 3 ? shape[0] - 1 : 0, row: height - 1, column: width - 1 };
    for (const source of sources(data, at).filter(({ part }) => part === from)) {
      const here = { ...source, row: source.row ?? 0, column: source.column ?? 0 };
      if (source.row < 0 || !covers(targets(data, here, to), at)) lost.push([from, to]);
    }
  }
  return lost;
}"""


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("translate", {"positions": "rotary"}),
        ("translate", {"architecture": "rnn", "cell": "lstm"}),
        ("classify", {"pool": "mean"}),
    ],
    ids=str,
)
def test_where_a_number_goes_is_where_it_is_read(page: Any, task: str, settings: dict[str, Any]) -> None:
    """For every part and what it is computed from: the input says that it goes there."""
    served(page)
    xray = documents.small_xray(task, **settings)
    pairs = [[part.id, each] for part in xray.graph.parts.values() for each in part.inputs]
    assert page.evaluate(TARGETS, [xray.outline(), pairs]) == []


def crumbs(page: Any) -> list[str]:
    return list(page.locator(".ch-crumbs button").all_inner_texts())


def test_the_keys_go_from_the_model_to_the_number(show: Open) -> None:
    page = show("xray", documents.xray())
    page.emulate_media(reduced_motion="reduce")
    for name in ("Decoder", "Block 1", "Cross-attention", "Head 2", "score"):
        page.locator(".ch-links .ch-chip").get_by_text(name, exact=True).first.click()
    page.locator(".ch-stage canvas").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    assert crumbs(page) == ["small", "Decoder", "Block 1", "Cross-attention", "Head 2", "score", "“el”", "“red”"]
    scores = documents.small_xray("translate").look.attention["decoder.cross"].scores[1]
    exact = page.locator(".ch-value-large")
    exact.wait_for()
    assert float(exact.get_attribute("data-exact")) == float(scores[2, 1, 1])
    assert page.locator(".ch-terms li").count() == 4  # 12 numbers in 3 heads
    assert "÷ √4" in page.locator(".ch-after").inner_text()
    page.locator(".ch-terms button").nth(1).click()  # the first number of the key
    assert crumbs(page)[-3:] == ["key", "“red”", "number 0"]
    for _ in range(8):
        page.locator(".ch-stage canvas").press("Escape")
    assert crumbs(page) == ["small"]


POINT = """text => {
  const canvas = document.querySelector(".ch-stage canvas");
  const box = canvas.getBoundingClientRect();
  for (let down = 10; down < 90; down += 2) {
    for (let across = 6; across < 94; across += 2) {
      const [x, y] = [box.left + box.width * across / 100, box.top + box.height * down / 100];
      canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
      if (document.querySelector(".ch-readout").innerText.startsWith(text)) return [x, y];
    }
  }
  return null;
}"""


def place_of(page: Any, text: str) -> tuple[float, float]:
    """A point of the picture at which the page says this, with the mouse there."""
    place = page.evaluate(POINT, text)
    assert place, f"nothing in the picture is called {text}"
    page.mouse.move(0, 0)
    page.mouse.move(*place)
    assert page.locator(".ch-readout").inner_text().startswith(text)
    return place[0], place[1]


def test_a_click_zooms_in_and_the_wheel_out(show: Open) -> None:
    page = show("xray", documents.xray())
    page.emulate_media(reduced_motion="reduce")
    place = place_of(page, "Self-attention")
    for _ in range(4):
        page.mouse.click(*place)
    assert crumbs(page)[:2] == ["small", "Encoder"]
    assert len(crumbs(page)) >= 4
    for _ in range(60):
        page.mouse.wheel(0, 120)
    assert crumbs(page) == ["small"]


def test_pointing_says_what_it_is(show: Open) -> None:
    page = show("xray", documents.xray())
    place_of(page, "Feed-forward")
    expected = "Feed-forward: A small network that works on each token by itself"
    assert page.locator(".ch-readout").inner_text().startswith(expected)


def test_the_data_flows_token_by_token(show_later: Open) -> None:
    page = show_later("xray", documents.xray())
    page.get_by_role("button", name="One part on").click()
    assert page.locator(".ch-dataflow").inner_text().startswith("Encoder › Embedding")
    page.get_by_role("button", name="Next token").click()
    assert "[START] …" in page.locator(".ch-dataflow").inner_text()
    page.get_by_role("button", name="Next token").click()
    assert "[START] el …" in page.locator(".ch-dataflow").inner_text()
    page.get_by_role("button", name="Let the data flow").click()
    page.clock.run_for(30_000)
    assert page.locator(".ch-dataflow").inner_text() == ""
    assert page.get_by_role("button", name="Let the data flow").is_visible()


def test_values_are_loaded_as_they_come_into_sight(page: Any) -> None:
    served(page)
    xray = documents.small_xray("translate")
    items = {item: xray.values(item) for item in [*xray.graph.groups, *xray.graph.parts] if item}
    mount = """async ([data, items]) => {
      const { mount } = await import("https://views.test/xray.js");
      window.asked = [];
      const load = async ({ item }) => { window.asked.push(item); return items[item]; };
      mount(document.getElementById("view"), data, { load });
    }"""
    page.evaluate(mount, [xray.outline(), items])
    page.wait_for_function("window.asked.includes('decoder.1') && window.asked.includes('output')")
    asked = page.evaluate("window.asked")
    assert len(asked) == len(set(asked))
    assert "" not in asked


def test_steps_multiply_two_vectors_and_add_up(show_later: Open) -> None:
    page = show_later("steps", documents.steps_with_vectors())
    assert page.locator(".ch-columns .ch-column").count() == 3  # the names and two numbers
    assert page.locator(".ch-total").inner_text() == "Σ 2 of 2 = 36.0"
    page.get_by_role("button", name="red", exact=True).click()
    assert page.locator(".ch-total").inner_text() == "Σ 2 of 2 = −6.00"
    page.get_by_role("button", name="Add up number by number").click()
    assert page.locator(".ch-total").inner_text() in ("Σ 0 of 2 = 0", "Σ 1 of 2 = −4.00", "Σ 2 of 2 = −6.00")
    page.clock.run_for(200)
    assert page.locator(".ch-total").inner_text() == "Σ 2 of 2 = −6.00"
    page.get_by_role("button", name="softmax").click()
    assert page.locator(".ch-number-matrix tr[aria-current]").inner_text().split()[0] == "coche"


def test_a_deep_model_stays_folded_until_a_block_is_opened(page: Any) -> None:
    served(page)
    xray = documents.small_xray("lm", layers=12)
    items = {item: xray.values(item) for item in [*xray.graph.groups, *xray.graph.parts] if item}
    mount = """async ([data, written]) => {
      const items = JSON.parse(written);
      const { mount } = await import("https://views.test/xray.js");
      window.asked = [];
      const load = async ({ item }) => { window.asked.push(item); return items[item]; };
      window.view = mount(document.getElementById("view"), data, { load });
    }"""
    page.evaluate(mount, [xray.outline(), json.dumps(items)])  # one text: Playwright sends numbers one by one
    page.wait_for_function("window.asked.includes('output')")
    assert not [item for item in page.evaluate("window.asked") if item[-1].isdigit()]
    page.evaluate("data => window.view.update(data, { node: 'decoder.7' })", xray.outline())
    page.wait_for_function("window.asked.includes('decoder.7')")
