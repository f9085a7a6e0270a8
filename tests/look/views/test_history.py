from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clearhead.errors import ProbeError
from clearhead.look.inputs import Edges
from clearhead.look.views.history import AttentionSnapshot, history, read_attention, read_history
from clearhead.run import find

LAYERS, H, T, S = 11, 2, 3, 5


def some_step(step: int, keys: int = S) -> AttentionSnapshot:
    torch.manual_seed(step)
    cross = {f"decoder.{layer}.cross": torch.rand(H, T, keys).half() for layer in reversed(range(LAYERS))}
    own = {"decoder.0.self": torch.rand(H, T, T).half()}
    edges: dict[str, Edges] = {"decoder.cross": ("xyz", "abcde"[:keys]), "decoder.self": ("xyz", "xyz")}
    return AttentionSnapshot(cross | own, edges)


def test_every_step_layer_and_head_is_where_it_was() -> None:
    found = history({700: some_step(700), 50: some_step(50)})
    assert found.steps == [50, 700]
    assert [each.shape for each in found.weights["decoder.cross"]] == [(2, H, T, S)] * LAYERS
    for number, step in enumerate(found.steps):
        for layer in range(LAYERS):
            expected = some_step(step).weights[f"decoder.{layer}.cross"].float()
            torch.testing.assert_close(found.weights["decoder.cross"][layer][number], expected)
            torch.testing.assert_close(found.at(step)["decoder.cross"][layer], expected)
    assert found.largest("decoder.self").shape == (2, 1, H)
    expected = some_step(50).weights["decoder.10.cross"].float().max(-1).values.mean(-1)
    torch.testing.assert_close(found.largest("decoder.cross")[0, 10], expected)


def test_a_history_as_plain_data() -> None:
    document = history({3: some_step(3), 2: some_step(2)}).to_json()
    assert document["format"] == "clearhead-history-1"
    assert document["steps"] == [2, 3]
    cross = document["attention"]["decoder.cross"]
    assert (cross["rows"], cross["columns"]) == (list("xyz"), list("abcde"))
    expected = some_step(3).weights["decoder.4.cross"].float()
    torch.testing.assert_close(torch.tensor(cross["weights"][1][4]), expected, atol=1e-5, rtol=1e-4)


def test_the_run_of_a_model_that_comes_with_the_package() -> None:
    folder = find("en-es") / "attention"
    found = read_history(folder)
    assert len(found.steps) == len(list(folder.iterdir()))
    assert set(found.weights) == {"encoder.self", "decoder.self", "decoder.cross"}
    rows, columns = found.edges["decoder.cross"]
    assert found.weights["decoder.cross"][0].shape[2:] == (len(rows), len(columns))
    last = read_attention(folder / f"step-{found.steps[-1]:08d}.safetensors")
    torch.testing.assert_close(found.weights["decoder.cross"][2][-1], last.weights["decoder.2.cross"].float())


def test_what_has_no_history_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"has no attention of any evaluation; train a model that attends"):
        read_history(tmp_path)
    with pytest.raises(ProbeError, match=r"steps 1 and 2 kept the attention of different models or examples"):
        history({1: some_step(1), 2: some_step(2, keys=4)})
    found = history({5: some_step(5), 7: some_step(7)})
    with pytest.raises(ProbeError, match=r"nothing was kept at step 6; choose from: 5, 7"):
        found.at(6)
    with pytest.raises(
        ProbeError, match=r"nothing was kept of encoder\.self; choose from: decoder\.cross, decoder\.self"
    ):
        found.largest("encoder.self")
