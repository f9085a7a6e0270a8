"""A look as data: what it gives, what it refuses, and the same again from disk."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.errors import ProbeError, RunError
from clearhead.look.look import Look
from clearhead.look.record import KINDS, AttentionRecord, rounded
from clearhead.look.views.rollout import rollout

T, S, HEADS, DIM, WIDTH, CHOICES = 3, 5, 2, 4, 7, 13
READ, WRITTEN = ["the", "red", "car", "is", "[STOP]"], ["el", "coche", "[STOP]"]


def attended(rows: list[str], columns: list[str], causal: bool = False, layers: int = 2) -> AttentionRecord:
    queries, keys = len(rows), len(columns)
    visible = torch.ones(queries, keys).tril().bool() if causal else torch.ones(queries, keys).bool()
    scores = [torch.randn(HEADS, queries, keys) for _ in range(layers)]
    return AttentionRecord(
        rows,
        columns,
        causal,
        visible,
        [each.masked_fill(~visible, -torch.inf).softmax(-1) for each in scores],
        scores,
        [torch.randn(HEADS, queries, DIM) for _ in range(layers)],
        *([torch.randn(HEADS, keys, DIM) for _ in range(layers)] for _ in range(2)),
    )


def made(**changes: Any) -> Look:
    torch.manual_seed(3)
    decoder = ["[START]", "el", "coche"]
    look = Look(
        model="en-es",
        task="translate",
        text="the red car is",
        attention={
            "encoder.self": attended(READ, READ),
            "decoder.self": attended(decoder, decoder, causal=True),
            "decoder.cross": attended(WRITTEN, READ),
        },
        tokens={"encoder": READ, "decoder": decoder},
        hidden={"encoder": list(torch.randn(3, S, WIDTH)), "decoder": list(torch.randn(3, T, WIDTH))},
        logits=torch.randn(T, CHOICES),
        output="el coche",
        choices=tuple(f"word {number}" for number in range(CHOICES)),
    )
    return dataclasses.replace(look, **changes)


def test_tensors_are_found_by_kind_and_layer() -> None:
    look = made()
    for short, name in {"weights": "weights", "scores": "scores", "q": "query", "k": "key", "v": "value"}.items():
        found = getattr(look, short)
        assert list(found) == ["encoder.self", "decoder.self", "decoder.cross"]
        assert found["decoder.cross"][1] is getattr(look.attention["decoder.cross"], name)[1]
    assert look.probabilities is not None
    torch.testing.assert_close(look.probabilities.sum(-1), torch.ones(T))
    assert made(logits=None).probabilities is None


def test_what_is_not_asked_for_is_chosen() -> None:
    look = made()
    assert look.kind() == next(iter(KINDS)) == "decoder.cross"
    assert look.pick().columns == READ
    only = {"encoder.self": look.attention["encoder.self"]}
    assert made(attention=only).kind() == "encoder.self"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"kind": "encoder.cross"},
            r"en-es has no attention called encoder\.cross; it has encoder\.self, decoder\.self",
        ),
        ({"layer": 2}, r"decoder\.cross of en-es has no layer 2; choose from 0 to 1"),
        ({"layer": 1, "head": -1}, r"decoder\.cross of en-es has no head -1; choose from 0 to 1"),
        ({"kind": "encoder.self", "query": 5}, r"encoder\.self of en-es has no query 5; choose from 0 to 4"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProbeError, match=sentence):
        made().pick(**asked)


def test_one_layer_and_no_attention_are_one_sentence_too() -> None:
    single = made(attention={"encoder.self": attended(READ, READ, layers=1)})
    with pytest.raises(ProbeError, match=r"has no layer 1; choose from 0$"):
        single.pick(layer=1)
    with pytest.raises(ProbeError, match="en-es has no attention; it has none at all"):
        made(attention={}).pick()


def test_as_plain_data() -> None:
    look = made(image=torch.arange(24, dtype=torch.uint8).reshape(2, 4, 3), grid=(1, 2), class_token=True)
    found = json.loads(json.dumps(look.to_json(), allow_nan=False))
    assert found["format"] == "clearhead-look-1"
    said = ("model", "task", "text", "tokens", "output", "class_token")
    assert [found[name] for name in said] == [getattr(look, name) for name in said]
    cross = found["attention"]["decoder.cross"]
    assert (cross["rows"], cross["columns"], cross["causal"]) == (WRITTEN, READ, False)
    assert found["attention"]["decoder.self"]["causal"] is True
    assert found["attention"]["decoder.self"]["visible"][0] == [True, False, False]
    torch.testing.assert_close(
        torch.tensor(cross["weights"]), torch.stack(look.weights["decoder.cross"]), rtol=1e-4, atol=0
    )
    assert "scores" not in cross
    assert "hidden" not in found
    assert found["image"][1][3] == [21, 22, 23]
    assert found["grid"] == [1, 2]


def test_likeliest_choices_of_each_position() -> None:
    look = made()
    assert look.probabilities is not None
    found = look.to_json()["probabilities"]
    assert [len(position) for position in found] == [10] * T
    order = look.probabilities[1].argsort(descending=True)
    assert [token for token, _ in found[1]] == [f"word {number}" for number in order[:10]]
    assert found[1][0][1] == pytest.approx(float(look.probabilities[1].max()), rel=1e-4)
    label = made(logits=torch.tensor([0.0, 2.0, 1.0]), choices=()).to_json()["probabilities"]
    assert [token for token, _ in label[0]] == ["1", "2", "0"]
    assert made(logits=None).to_json()["probabilities"] == []


def test_full_data_has_every_tensor() -> None:
    look = made()
    found = look.to_json(full=True)
    cross = found["attention"]["decoder.cross"]
    for name in ("scores", "q", "k", "v"):
        whole = torch.stack(getattr(look, name)["decoder.cross"])
        torch.testing.assert_close(torch.tensor(cross[name]), whole, rtol=1e-4, atol=0)
    torch.testing.assert_close(
        torch.tensor(found["hidden"]["decoder"]), torch.stack(look.hidden["decoder"]), rtol=1e-4, atol=0
    )


def test_numbers_have_five_digits() -> None:
    numbers = torch.tensor([0.0, 1 / 3, -2 / 3, 123456.7, 1e-9 / 7, 99999.6, 1.0], dtype=torch.float64)
    assert rounded(numbers) == [0.0, 0.33333, -0.66667, 123460.0, 1.4286e-10, 100000.0, 1.0]
    assert rounded(torch.tensor([[-torch.inf, 2.0]])) == [[-np.inf, 2.0]]


def same(found: Look, expected: Look) -> None:
    """Every field, and every tensor exactly; the network is not kept."""
    for field in dataclasses.fields(Look):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if field.name == "attention":
            assert list(a) == list(b)
            a, b = ([vars(each) for each in part.values()] for part in (a, b))
        if field.name not in ("network", "inputs"):
            equal(a, b)


def equal(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        equal(list(a.values()), list(b.values()))
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            equal(x, y)
    else:
        assert a == b


@pytest.mark.parametrize("name", ["kept/a.safetensors", "folder"])
def test_the_same_again_from_disk(name: str, tmp_path: Path) -> None:
    image = torch.arange(24, dtype=torch.uint8).reshape(2, 4, 3)
    look = made(image=image, grid=(1, 2), class_token=True, text="größe 語 ↵")
    file = look.save(tmp_path / name)
    assert file.suffix == ".safetensors"
    same(Look.load(tmp_path / name), look)
    same(Look.load(file), look)


def test_a_look_with_nothing_that_is_optional_from_disk(tmp_path: Path) -> None:
    bare = made(attention={}, logits=None, choices=())
    bare.save(tmp_path)
    same(Look.load(tmp_path), bare)


def test_files_that_cannot_be_used_are_one_sentence(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(
        RunError, match=r"other\.safetensors is not a saved look of this version: its format is unknown"
    ):
        Look.load(tmp_path / "other.safetensors")
    with pytest.raises(RunError, match=r"torn\.safetensors is damaged or not a safetensors file"):
        Look.load(tmp_path / "torn.safetensors")
    with pytest.raises(RunError, match=r"none\.safetensors is damaged or not a safetensors file"):
        Look.load(tmp_path / "none.safetensors")
    with pytest.raises(RunError, match=r"cannot write .*torn\.safetensors/x/look\.safetensors: Not a directory"):
        made().save(tmp_path / "torn.safetensors" / "x")


def test_as_arrays() -> None:
    look = made()
    found = look.to_numpy()
    np.testing.assert_array_equal(found["decoder.cross.weights.1"], look.weights["decoder.cross"][1].numpy())
    np.testing.assert_array_equal(found["encoder.hidden.2"], look.hidden["encoder"][2].numpy())
    assert found["decoder.self.visible"].dtype == bool
    assert found["logits"].shape == (T, CHOICES)
    assert "image" not in found


def test_figures_steps_and_rollout_are_those_of_their_modules(tmp_path: Path) -> None:
    look = made()
    look.heads(layer=1, head=0).save(tmp_path / "head.svg")
    assert ">coche<" in (tmp_path / "head.svg").read_text(encoding="utf-8")
    steps = look.steps(layer=1, head=0, query=2)
    assert (steps.kind, steps.layer, steps.head, steps.query) == ("decoder.cross", 1, 0, 2)
    torch.testing.assert_close(look.rollout(), rollout(look.weights["encoder.self"]))
    least = rollout(look.weights["decoder.self"], "min", 0.2)
    torch.testing.assert_close(look.rollout("decoder.self", heads="min", residual=0.2), least)
    with pytest.raises(ProbeError, match="en-es has no attention; it has none at all"):
        made(attention={}).rollout()


def test_a_page_that_opens_from_disk(tmp_path: Path) -> None:
    look = made(text="<b>")
    page = look.to_html(tmp_path / "pages" / "look.html")
    assert (tmp_path / "pages" / "look.html").read_text(encoding="utf-8") == page
    assert "clearhead-look-1" in page
    assert "<title>en-es: &lt;b&gt;</title>" in page
    assert "clearhead-steps-1" in look.to_html(view="steps", layer=0, head=1, query=0)
    with pytest.raises(ProbeError, match=r"a look has no page called beam; choose from: heads, patches, steps"):
        look.to_html(view="beam")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write .*look\.html: "):
        look.to_html(tmp_path / "file" / "look.html")
