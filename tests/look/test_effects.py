from __future__ import annotations

import pytest
import torch
from tests.look.networks import small_network
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ShapeError
from clearhead.look.interventions import divergence, effects, heads_off, layers_off, patched, trace
from clearhead.look.probes import capture

B, T, V = 3, 5, 13


def language_model() -> nn.Module:
    return small_network("lm").double().requires_grad_(False)


def some_text(seed: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randint(1, V, (B, T))


def test_each_effect_is_that_of_its_intervention_alone() -> None:
    model, ids, answers = language_model(), some_text(2), some_text(3)
    answers[0, :2] = -100
    found = effects(
        model,
        (ids,),
        {"head": lambda: heads_off(model, "decoder.0.self", [1]), "layer": lambda: layers_off(model, "decoder.1")},
        answers,
    )
    before = model(ids)
    torch.testing.assert_close(found.logits, before)
    with layers_off(model, "decoder.1"):
        after = model(ids)
    layer = found.each[1]
    assert [one.name for one in found.each] == ["head", "layer"]
    torch.testing.assert_close(layer.logits, after)
    losses = [F.cross_entropy(logits[answers != -100], answers[answers != -100]) for logits in (before, after)]
    assert found.loss == pytest.approx(float(losses[0]))
    assert layer.change == pytest.approx(float(losses[1] - losses[0]))
    assert layer.flipped == pytest.approx(float((before.argmax(-1) != after.argmax(-1)).sum()) / (B * T))
    expected = F.kl_div(after.log_softmax(-1), before.log_softmax(-1), log_target=True, reduction="none").sum(-1)
    torch.testing.assert_close(layer.divergence, expected)


def test_without_answers_there_is_no_loss() -> None:
    model, ids = language_model(), some_text(2)
    found = effects(model, (ids,), {"head": lambda: heads_off(model, "decoder.0.self", [1])})
    assert found.loss is None
    document = found.to_json()
    assert document["format"] == "clearhead-effects-1"
    assert document["effects"][0]["change"] is None
    assert document["effects"][0]["divergence"] == pytest.approx(float(found.each[0].divergence.mean()))


def test_an_intervention_that_changes_nothing_has_no_effect() -> None:
    logits = torch.randn(2, 3, 5)
    torch.testing.assert_close(divergence(logits, logits + 7), torch.zeros(2, 3), atol=1e-6, rtol=0)


def test_a_trace_patches_one_state_at_one_token() -> None:
    model, ids, donor = language_model(), some_text(2)[:1], some_text(4)[:1]

    def measure(logits: Tensor) -> Tensor:
        return logits[0, -1, 3] - logits[0, -1, 5]

    found = trace(model, (ids,), (donor,), measure, states="decoder.*.hidden")
    assert found.states == ["decoder.0.hidden", "decoder.1.hidden"]
    assert found.own == pytest.approx(float(measure(model(ids))))
    assert found.donor == pytest.approx(float(measure(model(donor))))
    with capture(model, "decoder.0.hidden") as theirs:
        model(donor)
    with patched(model, "decoder.0.hidden", theirs["decoder.0.hidden"], [2]):
        assert float(found.values[0, 2]) == pytest.approx(float(measure(model(ids))), rel=1e-5)
    # After the last block only the last token speaks, and it says all.
    torch.testing.assert_close(found.recovered[1], torch.tensor([0.0, 0, 0, 0, 1]), atol=1e-5, rtol=0)
    document = found.to_json()
    assert document["states"] == found.states
    torch.testing.assert_close(torch.tensor(document["values"]), found.values, atol=1e-5, rtol=1e-4)
    with pytest.raises(ShapeError, match=r"decoder\.0\.hidden has the shape \(1, 5, 12\) and cannot be patched with"):
        trace(model, (ids,), (donor[:, :3],), measure, states="decoder.0.hidden")
