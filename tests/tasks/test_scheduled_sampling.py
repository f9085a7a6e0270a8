from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.tasks.base.scheduled_sampling import replace_with_predictions

seeds = st.integers(0, 999)


def batch(seed: int, pad: int = 0) -> tuple[Tensor, Tensor]:
    """Targets that begin with 2 and end in padding, and predictions, among which padding too."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(3, 13, (5, 7), generator=generator)
    target[:, 0] = 2
    for row, length in enumerate(torch.randint(1, 8, (5,), generator=generator).tolist()):
        target[row, length:] = pad
    return target, torch.randint(13, (5, 7), generator=generator)


@given(seeds, st.floats(0, 1), st.sampled_from([0, 14]))
def test_start_and_padding_stay_and_no_padding_appears(seed, share, pad):
    target, predicted = batch(seed, pad)
    mixed = replace_with_predictions(target, predicted, share, torch.Generator().manual_seed(seed), pad=pad)
    assert torch.equal(mixed[:, 0], target[:, 0])
    assert torch.equal(mixed == pad, target == pad)


@given(seeds, st.floats(0, 1))
def test_every_token_is_the_target_or_the_prediction_in_its_place(seed, share):
    target, predicted = batch(seed)
    mixed = replace_with_predictions(target, predicted, share)
    shifted = torch.roll(predicted, 1, dims=1)  # the prediction after token t replaces token t + 1
    assert ((mixed == target) | (mixed == shifted)).all()


@given(seeds)
def test_share_zero_is_teacher_forcing_and_one_takes_every_prediction(seed):
    target, predicted = batch(seed)
    assert torch.equal(replace_with_predictions(target, predicted, 0.0), target)
    mixed = replace_with_predictions(target, predicted, 1.0)
    taken = (target[:, 1:] != 0) & (predicted[:, :-1] != 0)
    assert torch.equal(mixed[:, 1:][taken], predicted[:, :-1][taken])
    assert torch.equal(mixed[:, 1:][~taken], target[:, 1:][~taken])


def test_the_share_is_kept():
    target, predicted = torch.full((307, 311), 5), torch.full((307, 311), 7)
    mixed = replace_with_predictions(target, predicted, 0.3, torch.Generator().manual_seed(1))
    assert (mixed[:, 1:] == 7).float().mean() == pytest.approx(0.3, abs=0.01)


def test_the_same_generator_mixes_the_same_and_nothing_given_is_changed():
    target, predicted = batch(1)
    copies = target.clone(), predicted.clone()
    first, second = (
        replace_with_predictions(target, predicted, 0.5, torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert torch.equal(target, copies[0])
    assert torch.equal(predicted, copies[1])


def test_shapes_must_fit():
    with pytest.raises(ShapeError, match=r"predictions of shape \(3, 5\) cannot replace targets of shape \(3, 7\)"):
        replace_with_predictions(torch.ones(3, 7).long(), torch.ones(3, 5).long(), 0.5)
