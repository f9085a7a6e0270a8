from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.look.networks import small_network
from torch import Tensor, nn

from clearhead.errors import ProbeError
from clearhead.look.views.lens import Lens, logit_lens
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

S, T, V, CLASSES = 5, 3, 13, 7
PATCHES = 2 * 3


def make(task: str, **settings: Any) -> nn.Module:
    return small_network(task, **settings).double().requires_grad_(False)


CASES: dict[str, tuple[str, dict[str, Any], tuple[Tensor, ...]]] = {
    "lm": ("lm", {}, (torch.arange(1, 1 + S)[None],)),
    "norm after": ("lm", {"placement": "after"}, (torch.arange(1, 1 + S)[None],)),
    "translate": ("translate", {}, (torch.arange(1, 1 + S)[None], torch.arange(2, 2 + T)[None])),
    "classify": ("classify", {}, (torch.arange(1, 1 + S)[None],)),
    "mean": ("classify", {"pool": "mean"}, (torch.arange(1, 1 + S)[None],)),
    "tag": ("tag", {}, (torch.arange(1, 1 + S)[None],)),
    "vision": ("vision", {}, (torch.linspace(-1, 1, 24).double().view(1, 1, 4, 6),)),
    "caption": (
        "caption",
        {"architecture": "cross"},
        (torch.linspace(-1, 1, 24).double().view(1, 1, 4, 6), torch.arange(2, 2 + T)[None]),
    ),
    "sequence": (
        "caption",
        {"architecture": "sequence"},
        (torch.linspace(-1, 1, 24).double().view(1, 1, 4, 6), torch.arange(2, 2 + T)[None]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_layer_through_the_lens_is_the_answer(name: str) -> None:
    task, settings, inputs = CASES[name]
    model = make(task, **settings)
    answers = model(*inputs)
    found = logit_lens(model, inputs)
    torch.testing.assert_close(found.logits[-1], answers.reshape(-1, answers.size(-1)))
    assert len(found.logits) == 3
    assert not torch.allclose(found.logits[0], found.logits[1])


def test_a_lens_between_the_layers_is_a_model_that_ends_there() -> None:
    model, ids = make("lm"), torch.arange(1, 1 + S)[None]
    found = logit_lens(model, (ids,))
    del model.stack.blocks[1]  # type: ignore[union-attr,operator]
    torch.testing.assert_close(found.logits[1], model(ids)[0])


def test_rank_and_probability_of_the_final_answer() -> None:
    logits = torch.tensor([[[3.0, 1, 2], [0, 5, 1]], [[1, 4, 2], [0, 1, 5]]])
    found = Lens(logits)
    assert found.rank.tolist() == [[2, 1], [0, 0]]
    expected = torch.stack([logits[:, 0].softmax(-1)[:, 1], logits[:, 1].softmax(-1)[:, 2]], dim=1)
    torch.testing.assert_close(found.probability, expected)
    document = replace(found, tokens=["x", "y"], choices=["a", "b", "c"]).to_json()
    assert document["format"] == "clearhead-lens-1"
    assert [answer for answer, _ in document["layers"][0][1]] == ["b", "c", "a"]
    assert document["layers"][1][0][0][1] == pytest.approx(float(expected[1, 0]), rel=1e-4)
    assert document["rank"] == [[2, 1], [0, 0]]


@pytest.mark.parametrize(("task", "settings"), [("lm", {"architecture": "rnn"}), ("words", {})])
def test_a_model_without_blocks_says_so(task: str, settings: dict[str, Any]) -> None:
    if task == "words":
        model = build_network(TASKS["words"].config_type().model_validate({"model": {"dim": 5}}), Sizes(vocabulary=V))
    else:
        model = make(task, **settings)
    with pytest.raises(ProbeError, match=r"a logit lens reads between the blocks of a transformer, and this model has"):
        logit_lens(model, (torch.arange(1, 1 + S)[None],))
