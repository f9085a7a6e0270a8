"""The X-ray as data, as a page, as a figure and in the terminal."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

import clearhead
from clearhead.errors import ProbeError
from clearhead.look import build
from clearhead.look.inputs import PreparedInput
from clearhead.look.look import Look
from clearhead.look.view import show
from clearhead.look.views.xray import WEIGHT_BYTES, XRay

from ..networks import small_network

TEXT = "She has a red car."


def decoded(text: str, shape: list[int]) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype="<f4").copy()).view(shape)


def small_look(network: Any = None, **settings: Any) -> Look:
    """A translator of two layers that has read four tokens and three."""
    network = small_network("translate", **settings) if network is None else network
    written = {"decoder": ["y0", "y1", "y2"], "output": ["w0", "w1", "w2"]}
    prepared = PreparedInput((torch.tensor([[4, 9, 12, 5]]),), (2, 11, 8), encoder=["a", "b", "c", "d"], **written)
    return build.compute_look(network, prepared, lambda _: "an answer", model="small", task="translate")


def small() -> XRay:
    return XRay.of(small_look())


@pytest.fixture(scope="module")
def translated() -> Any:
    return show(clearhead.load("en-es"), "xray", item=TEXT)


def test_the_page_has_every_number_of_the_look_exactly(translated: XRay) -> None:
    data = translated.to_json()
    assert (data["format"], data["read"], data["output"]) == ("clearhead-xray-1", 1, "Ella tiene un coche rojo.")
    for id, part in translated.graph.parts.items():
        shape = data["parts"][id]["shape"]
        assert torch.equal(decoded(data["values"][id]["value"], shape), part.value)
    weights = translated.look.attention["decoder.cross"].weights[1]
    sent = decoded(data["values"]["decoder.1.cross.weights"]["value"], list(weights.shape))
    assert torch.equal(sent, weights)


def test_the_page_of_a_translator_has_the_beams_of_its_search(translated: XRay) -> None:
    tree = translated.to_json()["beam"]
    assert tree["texts"][tree["best"]] == "Ella tiene un coche rojo."
    assert {node["state"] for node in tree["nodes"]} == {"kept", "dropped", "finished"}
    assert "beam" not in small().to_json()  # of a look alone no search is known


def test_the_page_of_a_translator_is_one_file_below_three_megabytes(translated: XRay, tmp_path: Path) -> None:
    file = translated.save(tmp_path / "x.html")
    assert file.stat().st_size < 3_000_000
    text = file.read_text(encoding="utf-8")
    assert "<script src" not in text
    assert '<link rel="stylesheet"' not in text
    assert "weights" not in translated.to_json()  # its matrices are larger than a page may be


def test_a_small_model_brings_its_matrices() -> None:
    xray = small()
    data = xray.to_json()
    part = xray.graph.parts["decoder.1.self.query"]
    assert sum(4 * weight.numel() for each in xray.graph.parts.values() for weight in each.weight) < WEIGHT_BYTES
    [matrix] = data["weights"]["decoder.1.self.query"]
    assert torch.equal(decoded(matrix, list(part.weight[0].shape)), part.weight[0])
    [row] = xray.weight_row("decoder.1.self.query", 5)
    assert torch.equal(decoded(row, [12]), part.weight[0][5])


def test_values_come_group_by_group() -> None:
    xray = small()
    assert "values" not in xray.outline()
    block = xray.values("decoder.1")
    assert set(block) == {part.id for part in xray.graph.of_group("decoder.1")}
    assert set(xray.values("decoder.norm")) == {"decoder.norm"}
    assert set(block["decoder.1.feed_forward.norm"]["details"]) == {"gain", "shift"}


def test_what_does_not_exist_is_refused() -> None:
    xray = small()
    with pytest.raises(ProbeError, match=r"small has no part decoder\.7"):
        xray.values("decoder.7")
    with pytest.raises(ProbeError, match=r"decoder\.1\.self\.scores of small is not computed by a matrix"):
        xray.weight_row("decoder.1.self.scores", 0)
    with pytest.raises(ProbeError, match=r"the matrix of decoder\.1\.self\.query has no row 12: it has 12"):
        xray.weight_row("decoder.1.self.query", 12)


def test_the_code_and_the_equation_of_every_part_are_said() -> None:
    data = small().outline()
    for id, part in data["parts"].items():
        assert part["about"], id
        assert part["equation"], id
    assert data["parts"]["decoder.1.cross.scores"]["code"][0] == "nn/scores.py"
    assert data["parts"]["decoder.1.cross.scores"]["code"][2].startswith("return ")


def test_the_terminal_names_every_part_once() -> None:
    shown = Console(file=io.StringIO(), width=120)
    small().show(shown)
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "o = [z^1 … z^H] W_O" in text
    assert "Block 1  (the same parts)" in text
    assert text.count("Cross-attention") == 1


def test_the_figure_has_a_panel_for_each_block_and_the_answer(tmp_path: Path) -> None:
    xray = small()
    figure = xray.figure()
    titles = [axes.get_title(loc="left") for axes in figure.fig.axes]
    assert titles == ["embedded", "encoder.0", "encoder.1", "embedded", "decoder.0", "decoder.1", "answer"]
    assert xray.save(tmp_path / "x.svg").stat().st_size > 0


def test_a_language_model_reads_its_prompt_at_once_and_then_writes() -> None:
    model = clearhead.load("invented")
    xray: Any = show(model, "xray", item="zog plim", generate=True)
    assert xray.read == 8
    assert len(xray.graph.axes["decoder"]) > 8
    assert show(model, "xray", item="zog plim").read == 8  # type: ignore[attr-defined]
