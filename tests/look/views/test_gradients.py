from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.look.networks import small_network
from torch import Tensor, nn

from clearhead.errors import ConfigError, ProbeError, ShapeError
from clearhead.look.views import gradients
from clearhead.look.views.gradients import integrate, integrated_gradients, pixel_gradients
from clearhead.run import Sizes

B, S, T, V = 2, 5, 3, 13


def make(task: str, **settings: Any) -> nn.Module:
    return small_network(task, Sizes(vocabulary=V, classes=7, channels=3, height=4, width=6), **settings).double()


def sentences() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.randint(1, V, (B, S)), torch.randint(1, V, (B, T))


def test_a_parabola_is_integrated_exactly_by_its_middle_and_a_cube_by_many_steps() -> None:
    x, x0 = torch.tensor([[3.0, -2.0]]), torch.tensor([[1.0, 1.0]])
    [owed], gained = integrate(lambda points: (points[0] ** 2).sum(-1), [x], [x0], steps=1)
    torch.testing.assert_close(owed, x**2 - x0**2)
    torch.testing.assert_close(gained, torch.tensor([9.0 + 4 - 2]))
    [owed], _ = integrate(lambda points: (points[0] ** 3).sum(-1), [x], [x0], steps=200)
    torch.testing.assert_close(owed, x**3 - x0**3, atol=1e-3, rtol=0)


def test_two_points_share_what_their_product_gained() -> None:
    x, y = torch.tensor([[2.0]]), torch.tensor([[5.0]])
    (of_x, of_y), gained = integrate(
        lambda points: (points[0] * points[1]).sum(-1), [x, y], [torch.zeros(1, 1)] * 2, steps=3
    )
    assert (float(of_x), float(of_y), float(gained)) == pytest.approx((5, 5, 10))


CASES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "translator": ("translate", {}, {"encoder", "decoder"}),
    "recurrent": ("translate", {"architecture": "rnn"}, {"encoder", "decoder"}),
    "language model": ("lm", {"positions": "rotary", "heads": 6}, {"decoder"}),
    "classifier": ("classify", {}, {"encoder"}),
}


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_owed_what_the_answer_gained(name: str) -> None:
    task, settings, stacks = CASES[name]
    model, (source, target) = make(task, **settings), sentences()
    inputs = (source, target) if task == "translate" else (source,)
    found = integrated_gradients(model, inputs, position=2, steps=256)
    assert set(found.tokens) == stacks
    assert found.tokens.get("encoder", torch.ones(B, S)).shape == (B, S)
    assert (found.gap < 1e-3 * found.gained.abs().clamp(min=1)).all()
    assert (integrated_gradients(model, inputs, position=2, steps=2).gap > found.gap).all()
    logits = model(*inputs) if task == "classify" else model(*inputs)[:, 2]
    assert found.choice.tolist() == logits.argmax(-1).tolist()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", CASES)
def test_steps_that_are_computed_together_give_what_each_gives_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, settings, _ = CASES[name]
    model, inputs = make(task, **settings), sentences()[: 2 if task == "translate" else 1]
    together = integrated_gradients(model, inputs, position=1, steps=7)
    monkeypatch.setattr(gradients, "VECTORS", 1)
    alone = integrated_gradients(model, inputs, position=1, steps=7)
    torch.testing.assert_close(together.tokens, alone.tokens)
    torch.testing.assert_close(together.gained, alone.gained)


def test_a_causal_model_owes_nothing_to_what_comes_later() -> None:
    found = integrated_gradients(make("lm"), sentences()[:1], position=2, choice=4, steps=3)
    assert found.choice.tolist() == [4, 4]
    assert found.tokens["decoder"][:, 3:].eq(0).all()
    assert found.tokens["decoder"][:, :3].ne(0).all()


def test_pixels_are_owed_what_differs_from_the_background() -> None:
    model = make("vision", heads=2)
    torch.manual_seed(3)
    background = torch.randn(1, 3, 4, 6).double()
    images = background.repeat(B, 1, 1, 1)
    images[0, :, 1, 2] += 2.0
    images[1, 2, 3, 5] -= 2.0
    found = pixel_gradients(model, images, background, steps=256)
    assert found.tokens["pixels"].nonzero().tolist() == [[0, 1, 2], [1, 3, 5]]
    torch.testing.assert_close(found.tokens["pixels"][0, 1, 2], found.gained[0], atol=1e-4, rtol=1e-3)
    expected = model(images).amax(-1) - model(background)[0, found.choice]
    torch.testing.assert_close(found.gained, expected)


def test_what_is_owed_as_plain_data() -> None:
    document = integrated_gradients(make("classify"), sentences()[:1], steps=2).to_json()
    assert document["format"] == "clearhead-gradients-1"
    assert [len(row) for row in document["owed"]["encoder"]] == [S, S]


def test_what_cannot_be_integrated_is_one_sentence() -> None:
    model, inputs = make("lm"), sentences()[:1]
    with pytest.raises(ConfigError, match=r"steps=0 is too few; choose at least 1"):
        integrated_gradients(model, inputs, steps=0)
    with pytest.raises(ProbeError, match=r"there is no answer at position 9; choose from 0 to 4"):
        integrated_gradients(model, inputs, position=9)
    with pytest.raises(
        ShapeError, match=r"a background of shape \(3, 2, 6\) does not fit images of shape \(2, 3, 4, 6\)"
    ):
        pixel_gradients(make("vision"), torch.zeros(B, 3, 4, 6).double(), torch.zeros(3, 2, 6))
