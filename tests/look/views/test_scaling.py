from __future__ import annotations

import math

import pytest
import torch

from clearhead.errors import ShapeError
from clearhead.look.views.scaling import scaling, sharpness
from clearhead.nn.scores import scaled_dot


def test_the_scale_keeps_the_variance_at_one_whatever_the_size() -> None:
    found = scaling(sizes=(4, 64, 256), keys=31, queries=257)
    for with_scale, without in zip(found.scaled, found.plain, strict=True):
        assert with_scale.variance == pytest.approx(1, rel=0.1)
        assert without.variance == pytest.approx(without.size, rel=0.1)


def test_without_it_one_key_has_nearly_all_and_the_gradient_vanishes() -> None:
    found = scaling(sizes=(1, 256), keys=31, queries=257)
    small, large = found.plain
    assert large.largest > 0.85 > 0.3 > found.scaled[1].largest
    assert large.evenness < 0.15 < 0.8 < found.scaled[1].evenness
    assert large.gradient < 0.6 * found.scaled[1].gradient
    assert small == found.scaled[0]  # √1 = 1


def test_the_measures_are_those_of_the_softmax() -> None:
    torch.manual_seed(1)
    q, k = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 5, 3, dtype=torch.float64)
    found = sharpness(q, k, scaled_dot)
    scores = torch.stack([k[row] @ q[row] for row in range(2)]) / math.sqrt(3)
    weights = scores.softmax(-1)
    jacobians = [torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores[row]) for row in range(2)]
    assert found.size == 3
    assert found.variance == pytest.approx(float(scores.var()))
    assert found.largest == pytest.approx(float(weights.max(-1).values.mean()))
    assert found.evenness == pytest.approx(float(-(weights * weights.log()).sum(-1).mean()) / math.log(5))
    assert found.gradient == pytest.approx(sum(float(each.norm()) for each in jacobians) / 2)


def test_the_experiment_is_plain_data_and_the_same_every_time() -> None:
    document = scaling(sizes=(2, 3), keys=5, queries=7).to_json()
    assert document == scaling(sizes=(2, 3), keys=5, queries=7).to_json()
    assert document["format"] == "clearhead-scaling-1"
    assert [row["size"] for row in document["plain"]] == [2, 3]
    with pytest.raises(ShapeError, match=r"with keys=1 every query looks at the same key; choose at least 2"):
        scaling(keys=1)
