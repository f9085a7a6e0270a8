from __future__ import annotations

import pytest
import torch

from clearhead.look.steps import attention_steps
from clearhead.nn import attention, cosine, scaled_dot

NAMES = ["score", "scale", "softmax", "weight", "sum"]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("score", [scaled_dot, cosine])
def test_the_steps_end_in_what_attention_gives(masked: bool, score: object) -> None:
    torch.manual_seed(1)
    query, keys, values = torch.randn(5), torch.randn(7, 5), torch.randn(7, 3)
    mask = torch.tensor([True, False, True, True, False, True, True]) if masked else None
    steps = attention_steps(query, keys, values, mask, score)  # type: ignore[arg-type]
    output, weights = attention(query[None], keys, values, None if mask is None else mask[None], score)  # type: ignore[arg-type]
    found = {step.name: step.value for step in steps}
    torch.testing.assert_close(found["sum"], output[0])
    torch.testing.assert_close(found["softmax"], weights[0])
    expected = [name for name in NAMES if score is scaled_dot or name != "scale"]
    expected[expected.index("softmax") : expected.index("softmax")] = ["mask"] if masked else []
    assert [step.name for step in steps] == expected


def test_each_step_follows_from_the_one_before() -> None:
    query, keys, values = torch.tensor([8.0, 0, 0, 0]), torch.eye(4)[:2] * 2, torch.tensor([[1.0, 0], [0, 1]])
    score, scale, softmax, weight, total = (step.value for step in attention_steps(query, keys, values))
    torch.testing.assert_close(score, torch.tensor([16.0, 0]))
    torch.testing.assert_close(scale, torch.tensor([8.0, 0]))
    torch.testing.assert_close(softmax, scale.exp() / scale.exp().sum())
    torch.testing.assert_close(weight, softmax[:, None] * values)
    torch.testing.assert_close(total, weight.sum(0))
