from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.look.networks import small_network
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.interventions import heads_off
from clearhead.look.views.importance import head_gates, importance_by_ablation, importance_by_gradient

B, S, T, V, DIM, HEADS = 2, 5, 3, 13, 12, 3

Batch = tuple[Tensor, Tensor, Tensor]


def translator(**settings: Any) -> nn.Module:
    return small_network("translate", **settings).double()


def batches() -> list[Batch]:
    torch.manual_seed(4)
    return [tuple(torch.randint(1, V, (rows, size)) for size in (S, T, T)) for rows in (B, B + 1)]  # type: ignore[misc]


def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    source, target, answers = batch
    logits = model(source, target)
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum"), torch.tensor(answers.numel())


def mean_loss(model: nn.Module) -> float:
    with torch.no_grad():
        sums = [loss(model, batch) for batch in batches()]
    return sum(float(total) for total, _ in sums) / sum(int(count) for _, count in sums)


def test_ablation_is_the_rise_of_the_loss_without_the_head() -> None:
    model = translator()
    found = importance_by_ablation(model, batches(), loss)
    assert found.loss == pytest.approx(mean_loss(model))
    assert len(found.heads) == 6
    for name, head in (("encoder.1.self", 2), ("decoder.0.self", 0), ("decoder.1.cross", 1)):
        with heads_off(model, name, [head]):
            assert float(found.heads[name][head]) == pytest.approx(mean_loss(model) - found.loss)


def test_the_gradient_is_what_each_example_feels_of_the_head() -> None:
    model = translator()
    found = importance_by_gradient(model, batches(), loss)
    assert found.loss == pytest.approx(mean_loss(model))
    output, size = model.decoder.blocks[1].cross_attention.output, DIM // HEADS  # type: ignore[union-attr,index]
    felt = []
    for source, target, answers in batches():
        for row in range(len(source)):
            example = (source[row : row + 1], target[row : row + 1], answers[row : row + 1])
            value, _ = loss(model, example)
            (slope,) = torch.autograd.grad(value, output.weight)  # type: ignore[union-attr,arg-type]
            # g multiplies what the head writes, so ∂ loss / ∂ g = Σ slope × weight over its columns
            product = (slope * output.weight).detach()  # type: ignore[union-attr,operator]
            felt.append([abs(float(product[:, h * size : (h + 1) * size].sum())) for h in range(HEADS)])
    expected = torch.tensor(felt, dtype=torch.float64).mean(0)
    torch.testing.assert_close(found.heads["decoder.1.cross"], expected)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_head_that_writes_nothing_is_of_no_importance() -> None:
    model = translator()
    with torch.no_grad():
        model.encoder.blocks[0].self_attention.output.weight[:, :4] = 0  # type: ignore[union-attr,index]
    for rank in (importance_by_ablation, importance_by_gradient):
        found = rank(model, batches(), loss, "encoder.*")
        assert set(found.heads) == {"encoder.0.self", "encoder.1.self"}
        assert float(found.heads["encoder.0.self"][0]) == pytest.approx(0, abs=1e-12)
        assert all(float(found.heads["encoder.0.self"][head]) != 0 for head in (1, 2))


def test_gates_change_nothing_and_are_gone_afterwards() -> None:
    model, (source, target, _) = translator(), batches()[0]
    before = model(source, target)
    with head_gates(model, "decoder.*.cross") as made:
        torch.testing.assert_close(model(source, target), before, rtol=0, atol=0)
    assert {name: gate.shape for name, gate in made.items()} == {f"decoder.{n}.cross": (B, HEADS) for n in (0, 1)}
    assert not any(part._forward_hooks for part in model.modules())


def test_a_ranking_and_plain_data() -> None:
    found = importance_by_ablation(translator(), batches()[:1], loss, "decoder.0.*")
    ranked = found.ranking()
    assert len(ranked) == 2 * HEADS
    assert [value for *_, value in ranked] == sorted((value for *_, value in ranked), reverse=True)
    name, head, value = ranked[0]
    assert float(found.heads[name][head]) == value
    document = found.to_json()
    assert (document["format"], document["method"]) == ("clearhead-importance-1", "ablation")
    assert [len(row) for row in document["heads"].values()] == [HEADS, HEADS]


def test_what_cannot_be_ranked_is_one_sentence() -> None:
    for rank in (importance_by_ablation, importance_by_gradient):
        with pytest.raises(ShapeError, match=r"heads cannot be ranked without examples; give at least one batch"):
            rank(translator(), [], loss)
        with pytest.raises(ProbeError, match=r"this model has no encoder\.7\.self\.mixed: after encoder comes 0 to 1"):
            rank(translator(), batches(), loss, "encoder.7.self")
